// Runs the requests of a record again and compares every bit.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "engine/engine.h"
#include "engine/record.h"

namespace di::engine {

struct ReplayOptions {
  double speed = 0;  ///< requests arrive this many times as fast as recorded; 0: as soon as the
                     ///< queue takes them
  std::function<bool()> on_step = {};  ///< called after each step; false ends the replay early
};

/// Where a result differs from the record.
struct Difference {
  int64_t request = 0;  ///< index in the record
  std::string request_id = {};
  int64_t choice = -1;    ///< −1: of the prompt
  int64_t token = -1;     ///< index; −1: not of one token
  std::string what = {};  ///< "token", "logprob", "top_logprobs", "number of tokens", "number of
                          ///< prompt_logprobs", "finish_reason", "text" or "refused"
  std::string expected = {};
  std::string found = {};
};

/// One sentence.
std::string describe(const Difference& difference);

/// What came of a replay.
struct ReplayReport {
  int64_t num_requests = 0;
  int64_t num_compared = 0;              ///< requests that ended in both
  int64_t num_different = 0;             ///< of these, or refused now
  int64_t num_tokens = 0;                ///< of output, compared
  std::optional<Difference> first = {};  ///< first in the order of the record

  bool identical() const { return num_different == 0; }
};

/// Requests keep their parameters and seeds. One that was ended from outside is aborted when every
/// choice has as many tokens as in the record, and the common beginning is compared; timeouts are
/// left out. Throws Error{kUnsupported} for a record without content.
ReplayReport replay(Engine& engine, const Record& record, const ReplayOptions& options);

}  // namespace di::engine
