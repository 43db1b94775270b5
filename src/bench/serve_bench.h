// `deepinfer bench throughput` and `deepinfer bench latency`: an engine under traffic, as a user
// sees it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/memory_bench.h"
#include "bench/serve_client.h"

namespace di::bench {

/// What a user would call good.
struct ServeTarget {
  double ttft_ms = 1000;  ///< to the first token
  double tpot_ms = 100;   ///< a token after it, in the mean
};

struct ServeBenchOptions {
  bool closed_loop = true;          ///< throughput: points are concurrencies; latency: rates
  std::vector<double> points = {};  ///< requests under way at most (0: all at once), or arrivals a
                                    ///< second; one run each
  TrafficOptions traffic = {};      ///< its rate is that of the point in an open loop
  std::string prompts = {};         ///< text file that prompts are cut from; empty: random ids
  ServeTarget target = {};
  std::string trace = {};  ///< file; steps from the middle of the last point
  int64_t trace_steps = 64;
};

/// Runs the traffic once a point, after a short warm-up, and emits a line each:
///
/// - name, traffic, seed, requests, failed (not complete), point: concurrency or rate
/// - model, backend, isa, threads and the engine's options that shape steps
/// - seconds; prompt_tokens, output_tokens and each a second; requests_per_s
/// - ttft_ms, tpot_ms (a request's mean time of a token after its first), gap_ms (between two
///   tokens), end_s: p50, p90, p99 and max of each
/// - goodput_per_s, goodput_share: requests within the target
/// - steps, rows_per_step, step_ms, plan_us, apply_us (p50, p99), device_use, preemptions;
///   window_seconds: the end of the run that the times of steps are of
/// - gain: output tokens/s over those of the first line; bytes_gain: the same if only the bytes of
///   decode steps counted (StepBytes); null in an open loop
///
/// Returns the lines. Throws what make_traffic() and serve() throw.
std::vector<Json> bench_serve(
    engine::Engine& engine, const ServeBenchOptions& options, const Emit& emit
);

}  // namespace di::bench
