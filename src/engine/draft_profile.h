// The costs of steps, kept from run to run: one small JSON file for each fingerprint of model,
// device, build and limits, in a folder that the caller names.
//
// A file is read as something that anybody may have written. Nothing is deleted but our own
// temporary file.
#pragma once

#include <optional>
#include <string>

#include "sched/draft_costs.h"

namespace di::engine {

/// What costs depend on. Any text; a table is used only where all of it is the same.
struct DraftProfileKey {
  std::string model;   ///< for example model_fingerprint()
  std::string device;  ///< backend, device or instruction set, threads
  std::string build;   ///< version or commit
  std::string limits;  ///< drafts, sequences, rows
};

/// A table, or why there is none.
struct DraftProfile {
  std::optional<sched::CostTable> table = {};
  std::string reason = {};  ///< empty when there is a table
};

/// The file of a key in `folder`: "draft_costs.<hash>.json".
std::string draft_profile_path(const std::string& folder, const DraftProfileKey& key);

/// The table that was kept for `key`. Never throws: a file that is absent, too large, no JSON, of
/// another version or key, or without sound numbers is a reason.
DraftProfile load_draft_profile(const std::string& folder, const DraftProfileKey& key);

/// Keeps a sound table: makes the folder when there is none, writes beside the file and renames.
/// Never throws; returns why it was not kept, or nothing.
std::string save_draft_profile(
    const std::string& folder, const DraftProfileKey& key, const sched::CostTable& table
);

}  // namespace di::engine
