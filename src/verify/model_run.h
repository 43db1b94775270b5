// One run of a model over a case's tokens, recorded under the fixtures' tensor names.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "model/session.h"
#include "verify/fixture.h"

namespace di::verify {

/// A recorded tensor: floats, or integers when `is_integer`.
struct Recorded {
  std::vector<float> floats = {};
  std::vector<int64_t> integers = {};
  std::vector<int64_t> shape = {};
  bool is_integer = false;

  bool operator==(const Recorded&) const = default;
};

using Record = std::map<std::string, Recorded>;

/// What one run is given.
struct RunRequest {
  const Fixture* fixture = nullptr;  ///< input_ids, decode.tokens, image rows, golden tensors
  std::vector<int64_t> chunks = {};  ///< lengths that the prompt is split into; empty: one shot
  bool force = false;                ///< replace every observed tensor by the golden one
  std::string decode_tokens = "decode.tokens";  ///< fed one by one after the prompt
  model::Replay replay = {};
  model::LogitRows prompt_logits = model::LogitRows::kAll;
  bool drafts = false;  ///< draft, too, wherever the fixture has a draft
};

/// A model ready to run.
struct LoadedModel {
  checkpoint::Checkpoint checkpoint;
  model::Model model;
};

/// Opens and loads a checkpoint folder for a backend, drafter included.
LoadedModel load_for_verify(const std::string& folder, const ops::OpTable& ops, ThreadPool& pool);

/// Prefill, teacher-forced decode, and drafts from its anchors. With `force`, `Record` holds what
/// was computed from golden inputs, before it was replaced.
Record run_case(
    const LoadedModel& loaded, const RunRequest& request, const ops::OpTable& ops, ThreadPool& pool
);

}  // namespace di::verify
