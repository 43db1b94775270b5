#include "bench/serve_plot.h"

#include <fmt/format.h>

#include "bench/svg_plot.h"

namespace di::bench {
namespace {

PlotSeries series_of(const std::vector<Json>& lines, const char* key, const char* name) {
  PlotSeries series{name, {}};
  for (const Json& line : lines) {
    const Json* point = line.find("concurrency");
    if (point == nullptr) point = &line.at("rate");
    if (line.at(key).is_null()) continue;
    series.points.push_back(
        {line.at("output_tokens_per_s").as_number(),
         line.at(key).as_number(),
         fmt::format("{:g}", point->as_number())}
    );
  }
  return series;
}

}  // namespace

std::string serve_svg(const std::vector<Json>& lines) {
  if (lines.empty()) return svg_document({});
  const Json& first = lines.front();
  const bool closed = first.find("concurrency") != nullptr;
  const std::string what = fmt::format(
      "{}, {} threads, {} x {}; labels: {}",
      first.at("model").as_string(),
      first.at("threads").as_integer(),
      first.at("requests").as_integer(),
      first.at("traffic").as_string(),
      closed ? "requests under way" : "arrivals a second"
  );
  const std::string x_axis = "output tokens/s";
  return svg_document(
      {{"Time a token: " + what,
        x_axis,
        "ms a token after the first",
        {series_of(lines, "tpot_ms_p50", "p50"), series_of(lines, "tpot_ms_p99", "p99")}},
       {"Time to the first token: " + what,
        x_axis,
        "ms to the first token",
        {series_of(lines, "ttft_ms_p50", "p50"), series_of(lines, "ttft_ms_p99", "p99")}}}
  );
}

}  // namespace di::bench
