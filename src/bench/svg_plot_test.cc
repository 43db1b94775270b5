// Plots are well-formed XML and lose no point.
#include "bench/svg_plot.h"

#include <cmath>
#include <string_view>

#include <gtest/gtest.h>

namespace di::bench {
namespace {

int count_of(const std::string& text, const std::string& part) {
  int count = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++count;
  return count;
}

/// What is wrong with `xml` as a document of elements and text: an open element, a stray '<', '&'
/// or '"'. Empty: nothing. Knows what our writer may use, no more.
std::string xml_fault(std::string_view xml) {
  std::vector<std::string> open;
  for (std::size_t i = 0; i < xml.size(); ++i) {
    if (xml[i] == '&') {
      const auto end = xml.find(';', i);
      const std::string_view name = xml.substr(i, end == std::string_view::npos ? 0 : end - i + 1);
      if (name != "&amp;" && name != "&lt;" && name != "&gt;" && name != "&quot;")
        return "a stray & at " + std::to_string(i);
    }
    if (xml[i] != '<') continue;
    const auto end = xml.find('>', i);
    if (end == std::string_view::npos) return "an open tag";
    const std::string_view tag = xml.substr(i + 1, end - i - 1);
    if (tag.find('<') != std::string_view::npos) return "a stray < at " + std::to_string(i);
    int quotes = 0;
    for (const char c : tag)
      quotes += c == '"' ? 1 : 0;
    if (quotes % 2 != 0) return "an open quote in " + std::string(tag);
    if (tag.front() == '/') {
      if (open.empty() || open.back() != tag.substr(1)) return "unexpected " + std::string(tag);
      open.pop_back();
      if (open.empty() && end + 2 < xml.size()) return "text behind the document";
    } else if (tag.back() != '/') {
      open.emplace_back(tag.substr(0, tag.find(' ')));
    }
    i = end;
  }
  return open.empty() ? "" : "open: " + open.back();
}

Plot example() {
  return {
      .title = "a < b & \"c\"",
      .x_axis = "tokens/s",
      .y_axis = "ms",
      .series = {
          {"p50", {{10, 1, "1"}, {20, 1.5, "2"}, {35, 4, "4"}}},
          {"p99", {{10, 2, "<1>"}, {20, 3, "2"}}}}};
}

TEST(SvgPlot, IsWellFormed) {
  EXPECT_EQ(xml_fault(svg_document({example(), example()})), "");
  EXPECT_EQ(xml_fault(svg_document({})), "");
  EXPECT_EQ(xml_fault(svg_document({Plot{}})), "");
}

TEST(SvgPlot, TheTestOfXmlFindsFaults) {
  EXPECT_NE(xml_fault("<a><b></a>"), "");
  EXPECT_NE(xml_fault("<a>x & y</a>"), "");
  EXPECT_NE(xml_fault("<a b=\"c></a>"), "");
  EXPECT_NE(xml_fault("<a>"), "");
  EXPECT_EQ(xml_fault("<a b=\"c\">x &amp; y<d/></a>"), "");
}

TEST(SvgPlot, HasEveryPointAndLabel) {
  const std::string svg = svg_document({example()});
  EXPECT_EQ(count_of(svg, "<circle"), 5);
  EXPECT_EQ(count_of(svg, "<path"), 2);
  for (const char* label : {">1<", ">2<", ">4<", "&lt;1&gt;", "p50", "p99", "tokens/s", "a &lt; b"})
    EXPECT_GT(count_of(svg, label), 0) << label;
  EXPECT_EQ(count_of(svg, "prefers-color-scheme: dark"), 1);
}

TEST(SvgPlot, DrawsLargerValuesFurtherRightAndHigher) {
  const std::string svg = svg_document({example()});
  const auto number_after = [&](const char* key, std::size_t from) {
    return std::stod(svg.substr(svg.find(key, from) + std::string(key).size()));
  };
  const std::size_t first = svg.find("<circle");
  const std::size_t second = svg.find("<circle", first + 1);
  EXPECT_LT(number_after("cx=\"", first), number_after("cx=\"", second));
  EXPECT_GT(number_after("cy=\"", first), number_after("cy=\"", second));
}

TEST(SvgPlot, LeavesOutWhatIsNotFinite) {
  Plot plot = example();
  plot.series[0].points[1].y = std::nan("");
  const std::string svg = svg_document({plot});
  EXPECT_EQ(count_of(svg, "<circle"), 4);
  EXPECT_EQ(count_of(svg, "nan"), 0);
}

TEST(SvgPlot, TicksAreRoundAndReachTheLargestValue) {
  EXPECT_EQ(axis_ticks(10), (std::vector<double>{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(axis_ticks(0), axis_ticks(1));
  for (const double most : {0.003, 0.7, 1.0, 3.0, 99.0, 101.0, 12345.0}) {
    const std::vector<double> ticks = axis_ticks(most);
    EXPECT_GE(ticks.back(), most);
    EXPECT_GE(ticks.size(), 3u) << most;
    EXPECT_LE(ticks.size(), 7u) << most;
  }
}

}  // namespace
}  // namespace di::bench
