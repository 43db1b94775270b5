#include "bench/op_runner.h"

#include <algorithm>

#include <fmt/format.h>

namespace di::bench {
namespace {

constexpr double kSampleSeconds = 0.001;  // short samples find calm moments

}  // namespace

OpRunner::OpRunner(const OpsBenchOptions& options, const Emit& emit)
    : options_(options),
      emit_(emit),
      table_(ops::cpu_ops(options.isa)),
      pool_(options.threads),
      exec_{pool_, scratch_},
      limits_(measure_limits(pool_, options.isa)) {}

bool OpRunner::wanted(const std::string& name) const {
  return options_.only.empty() || options_.only == name;
}

void OpRunner::measure(
    const OpCase& what, int64_t count, const std::function<void(int64_t)>& call
) {
  const double seconds =
      std::max(what.bytes / limits_.read_gbps, 2 * what.products / peak_gflops(what)) * 1e-9;
  const auto fitting = static_cast<int64_t>(kSampleSeconds / seconds);
  const int64_t calls = std::clamp<int64_t>(fitting, 1, count);
  int64_t next = 0;
  const Times times = time_calls(Patience{options_.seconds, 5}, [&] {
    for (int64_t i = 0; i < calls; ++i)
      call(next++ % count);
  });
  report(what, times.best_s / static_cast<double>(calls));
}

void OpRunner::report(const OpCase& what, double seconds) const {
  const double gbps = what.bytes / seconds * 1e-9;
  const double gflops = 2 * what.products / seconds * 1e-9;
  emit_(Json::Object{
      {"name", what.name},
      {"backend", table_.name},
      {"isa", table_.isa},
      {"rows", what.rows},
      {"shape", fmt::format("{}, {} threads", what.shape, pool_.num_threads())},
      {"us", seconds * 1e6},
      {"gbps", gbps},
      {"gflops", gflops},
      {"share", std::max(gbps / limits_.read_gbps, gflops / peak_gflops(what))}});
}

}  // namespace di::bench
