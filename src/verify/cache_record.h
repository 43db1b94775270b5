// A session's caches under the fixtures' names and in their layout.
#pragma once

#include <string>

#include "model/session.h"
#include "verify/model_run.h"

namespace di::verify {

/// Adds `prefix`.L{l}.win_*, .ckv_*, .ik_*, .carry_* as they stand after the session's tokens, and
/// `prefix`.D{s}.win_* of the draft stages.
void record_caches(
    const std::string& prefix,
    const model::Model& model,
    const cache::KvCache& cache,
    const model::Session& session,
    Record& record
);

}  // namespace di::verify
