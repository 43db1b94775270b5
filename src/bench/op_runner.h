// Runs the ops of the cpu backend again and again and reports what they reach of the machine.
#pragma once

#include <functional>
#include <random>
#include <string>

#include "bench/limits.h"
#include "bench/ops_bench.h"
#include "ops/ops.h"

namespace di::bench {

/// What one call of an op does.
struct OpCase {
  std::string name;
  std::string shape;
  int64_t rows = 0;
  double bytes = 0;       ///< read from memory at least once
  double products = 0;    ///< multiply-adds
  double peak_share = 1;  ///< of the fp32 multiply-add peak, at most reachable: ½ for doubles
};

/// A table, its threads and this machine's limits, measured at construction.
class OpRunner {
 public:
  OpRunner(const OpsBenchOptions& options, const Emit& emit);

  const OpsBenchOptions& options() const { return options_; }
  const ops::OpTable& table() const { return table_; }
  ops::Exec& exec() { return exec_; }
  std::mt19937& random() { return random_; }

  /// Whether the options ask for the benchmark called `name`.
  bool wanted(const std::string& name) const;

  /// Times call(i) over i in [0, count), a few calls a sample, and reports the best. `share` is
  /// the larger of gbps and gflops over what this machine can do.
  void measure(const OpCase& what, int64_t count, const std::function<void(int64_t)>& call);

 private:
  void report(const OpCase& what, double seconds) const;
  double peak_gflops(const OpCase& what) const { return limits_.fma_gflops * what.peak_share; }

  const OpsBenchOptions& options_;
  const Emit& emit_;
  const ops::OpTable& table_;
  ThreadPool pool_;
  Arena scratch_;
  ops::Exec exec_;
  Limits limits_;
  std::mt19937 random_{1};
};

}  // namespace di::bench
