// Plots as text; see svg_plot.h. Colours come from classes of one style sheet, so that a dark page
// gets its own.
#include "bench/svg_plot.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace di::bench {
namespace {

constexpr double kWidth = 720;
constexpr double kHeight = 360;  // of a panel
constexpr double kLeft = 72, kRight = 24, kTop = 56, kBottom = 56;
constexpr int kNumColours = 6;

constexpr const char* kStyle = R"(<style>
.page { fill: #ffffff } text { fill: #24292f; font: 12px sans-serif } .title { font-weight: bold }
.grid { stroke: #d0d7de } .axis { stroke: #57606a } .line { fill: none; stroke-width: 2 }
.s0 { stroke: #0969da; fill: #0969da } .s1 { stroke: #bc4c00; fill: #bc4c00 }
.s2 { stroke: #1a7f37; fill: #1a7f37 } .s3 { stroke: #8250df; fill: #8250df }
.s4 { stroke: #bf3989; fill: #bf3989 } .s5 { stroke: #6e7781; fill: #6e7781 }
.line { fill: none }
@media (prefers-color-scheme: dark) {
.page { fill: #0d1117 } text { fill: #e6edf3 } .grid { stroke: #30363d } .axis { stroke: #8b949e }
.s0 { stroke: #58a6ff; fill: #58a6ff } .s1 { stroke: #f0883e; fill: #f0883e }
.s2 { stroke: #3fb950; fill: #3fb950 } .s3 { stroke: #bc8cff; fill: #bc8cff }
.s4 { stroke: #f778ba; fill: #f778ba } .s5 { stroke: #8b949e; fill: #8b949e }
.line { fill: none }
}
</style>
)";

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&': result += "&amp;"; break;
      case '<': result += "&lt;"; break;
      case '>': result += "&gt;"; break;
      case '"': result += "&quot;"; break;
      default: result += c;
    }
  }
  return result;
}

bool is_drawn(const PlotPoint& point) {
  return std::isfinite(point.x) && std::isfinite(point.y);
}

/// Where values lie on the page.
class Scale {
 public:
  Scale(const Plot& plot, double top) : top_(top) {
    double most_x = 0;
    double most_y = 0;
    for (const PlotSeries& series : plot.series) {
      for (const PlotPoint& point : series.points) {
        if (!is_drawn(point)) continue;
        most_x = std::max(most_x, point.x);
        most_y = std::max(most_y, point.y);
      }
    }
    x_ticks = axis_ticks(most_x);
    y_ticks = axis_ticks(most_y);
  }

  double x(double value) const {
    return kLeft + value / x_ticks.back() * (kWidth - kLeft - kRight);
  }
  double y(double value) const {
    return bottom() - value / y_ticks.back() * (kHeight - kTop - kBottom);
  }
  double top() const { return top_ + kTop; }
  double bottom() const { return top_ + kHeight - kBottom; }

  std::vector<double> x_ticks;
  std::vector<double> y_ticks;

 private:
  double top_;
};

void text(std::string& svg, double x, double y, const char* attributes, const std::string& words) {
  svg += fmt::format(
      "<text x=\"{:.1f}\" y=\"{:.1f}\" {}>{}</text>\n", x, y, attributes, escaped(words)
  );
}

void line(std::string& svg, const char* kind, double x1, double y1, double x2, double y2) {
  svg += fmt::format(
      "<line class=\"{}\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>\n",
      kind,
      x1,
      y1,
      x2,
      y2
  );
}

void draw_axes(std::string& svg, const Plot& plot, const Scale& scale) {
  for (const double tick : scale.x_ticks) {
    const double x = scale.x(tick);
    line(svg, tick == 0 ? "axis" : "grid", x, scale.top(), x, scale.bottom());
    text(svg, x, scale.bottom() + 18, "text-anchor=\"middle\"", fmt::format("{:g}", tick));
  }
  for (const double tick : scale.y_ticks) {
    const double y = scale.y(tick);
    line(svg, tick == 0 ? "axis" : "grid", kLeft, y, kWidth - kRight, y);
    text(svg, kLeft - 8, y + 4, "text-anchor=\"end\"", fmt::format("{:g}", tick));
  }
  const double middle = (kLeft + kWidth - kRight) / 2;
  text(svg, middle, scale.bottom() + 40, "text-anchor=\"middle\"", plot.x_axis);
  text(svg, 12, scale.top() - 12, "text-anchor=\"start\"", plot.y_axis);
  text(svg, 12, scale.top() - 34, "class=\"title\"", plot.title);
}

void draw_points(std::string& svg, const PlotSeries& series, int colour, const Scale& scale) {
  std::string path;
  for (const PlotPoint& point : series.points) {
    if (!is_drawn(point)) continue;
    path += fmt::format(
        "{}{:.1f},{:.1f}", path.empty() ? "M" : " L", scale.x(point.x), scale.y(point.y)
    );
  }
  if (path.empty()) return;
  svg += fmt::format("<path class=\"s{} line\" d=\"{}\"/>\n", colour, path);
  for (const PlotPoint& point : series.points) {
    if (!is_drawn(point)) continue;
    const double x = scale.x(point.x);
    const double y = scale.y(point.y);
    const std::string words =
        fmt::format("{} {}: {:.4g}, {:.4g}", series.name, point.label, point.x, point.y);
    svg += fmt::format(
        "<circle class=\"s{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\"><title>{}</title></circle>\n",
        colour,
        x,
        y,
        escaped(words)
    );
    if (!point.label.empty()) text(svg, x + 6, y - 7, "text-anchor=\"start\"", point.label);
  }
}

void draw_legend(std::string& svg, const Plot& plot, const Scale& scale) {
  double x = kWidth - kRight;
  for (std::size_t i = plot.series.size(); i-- > 0;) {
    x -= 24 + 7 * static_cast<double>(plot.series[i].name.size());
    const double y = scale.top() - 34;
    const auto colour = static_cast<int>(i) % kNumColours;
    svg += fmt::format(
        "<rect class=\"s{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"10\" height=\"10\"/>\n",
        colour,
        x,
        y - 9
    );
    text(svg, x + 14, y, "text-anchor=\"start\"", plot.series[i].name);
  }
}

}  // namespace

std::vector<double> axis_ticks(double most) {
  if (!(most > 0) || !std::isfinite(most)) most = 1;
  const double power = std::pow(10, std::floor(std::log10(most / 5)));
  double step = 10 * power;
  for (const double factor : {5.0, 2.0, 1.0}) {
    if (factor * power * 5 >= most) step = factor * power;
  }
  std::vector<double> ticks{0};
  while (ticks.back() < most)
    ticks.push_back(static_cast<double>(ticks.size()) * step);
  return ticks;
}

std::string svg_document(const std::vector<Plot>& plots) {
  const double height = kHeight * static_cast<double>(plots.size());
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {:g} {:g}\" width=\"{:g}\" "
      "height=\"{:g}\">\n",
      kWidth,
      height,
      kWidth,
      height
  );
  svg += kStyle;
  svg += "<rect class=\"page\" width=\"100%\" height=\"100%\"/>\n";
  for (std::size_t panel = 0; panel < plots.size(); ++panel) {
    const Plot& plot = plots[panel];
    const Scale scale(plot, kHeight * static_cast<double>(panel));
    draw_axes(svg, plot, scale);
    for (std::size_t i = 0; i < plot.series.size(); ++i)
      draw_points(svg, plot.series[i], static_cast<int>(i) % kNumColours, scale);
    draw_legend(svg, plot, scale);
  }
  return svg + "</svg>\n";
}

}  // namespace di::bench
