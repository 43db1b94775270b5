// The client of a serving benchmark: sends traffic to an engine and notes when tokens come.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/traffic.h"
#include "engine/engine.h"

namespace di::bench {

/// What became of one request. Times are seconds since the run began.
struct ServedRequest {
  double arrival = 0;      ///< when it should have been sent, or was, in a closed loop
  double first_token = 0;  ///< 0: none came
  double end = 0;
  int64_t prompt_tokens = 0;
  int64_t output_tokens = 0;
  bool complete = false;  ///< it has all the tokens that the traffic wants of it

  double ttft() const { return first_token - arrival; }
  double total() const { return end - arrival; }
  /// Mean time of a token after the first; 0 when there is none.
  double time_per_token() const {
    return output_tokens < 2 ? 0 : (end - first_token) / static_cast<double>(output_tokens - 1);
  }
};

struct ServeLoad {
  std::string id;           ///< request ids begin with it; each run of an engine needs its own
  int64_t concurrency = 0;  ///< requests under way at most; 0: as many as have arrived
  std::string trace = {};   ///< file; steps from the middle of the run; empty: none
  int64_t trace_steps = 64;
};

struct ServeRun {
  std::vector<ServedRequest> requests;  ///< as in the traffic
  std::vector<double> gaps;  ///< seconds between two tokens of a request, of all requests
  double seconds = 0;        ///< from the first arrival to the last token
  int64_t steps = 0;
  int64_t preemptions = 0;
  engine::Stats stats =
      {};  ///< at the end; its window is the run, or the end of it (window_seconds)
};

/// Sends the traffic and waits for all of it. With a concurrency the next request goes out when one
/// has ended, but not before its arrival, and counts from then (a closed loop); without, requests
/// count from their arrival, however busy the engine is (an open loop). Greedy, and through the end
/// token, so that outputs are as long as the traffic says. Throws Error{kInvalidArgument} when the
/// engine refuses a request.
ServeRun serve(
    engine::Engine& engine, const std::vector<TrafficRequest>& traffic, const ServeLoad& load
);

}  // namespace di::bench
