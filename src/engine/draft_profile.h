// What is known of drafts, kept from run to run: what steps cost, and whether drafts paid. One
// small JSON file for each fingerprint of model, device, build and limits, in a folder that the
// caller names.
//
// A file is read as something that anybody may have written. Nothing is deleted but our own
// temporary file.
#pragma once

#include <optional>
#include <string>

#include "sched/draft_control.h"

namespace di::engine {

/// What costs depend on. Any text; knowledge is used only where all of it is the same.
struct DraftProfileKey {
  std::string model;   ///< for example model_fingerprint()
  std::string device;  ///< backend, device or instruction set, threads
  std::string build;   ///< version or commit
  std::string limits;  ///< drafts, sequences, rows
};

/// What was kept, or why there is nothing.
struct DraftProfile {
  std::optional<sched::DraftKnowledge> knowledge = {};
  std::string reason = {};  ///< empty when there is any
};

/// The file of a key in `folder`: "draft_costs.<hash>.json".
std::string draft_profile_path(const std::string& folder, const DraftProfileKey& key);

/// What was kept for `key`. Never throws: a file that is absent, too large, no JSON, of
/// another version or key, or without sound numbers is a reason.
DraftProfile load_draft_profile(const std::string& folder, const DraftProfileKey& key);

/// Keeps sound knowledge: makes the folder when there is none, writes beside the file and renames.
/// Never throws; returns why it was not kept, or nothing.
std::string save_draft_profile(
    const std::string& folder, const DraftProfileKey& key, const sched::DraftKnowledge& knowledge
);

}  // namespace di::engine
