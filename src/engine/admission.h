// What a request must satisfy to be taken.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/request.h"
#include "sched/scheduler.h"

namespace di::engine {

/// The engine's side of the bargain.
struct AdmissionLimits {
  int64_t vocab_size = 0;
  int64_t context = 0;
  std::string replay = {};  ///< mode of bounded replay
  int64_t max_queued_requests = 0;
  int64_t max_queued_tokens = 0;
};

/// Why `request` cannot be taken, or nothing. Looks at everything once, so that nothing has to be
/// refused later.
std::optional<Refusal> check_request(
    const Request& request, const AdmissionLimits& limits, const sched::SchedulerCounts& counts
);

}  // namespace di::engine
