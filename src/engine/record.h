// Record: requests and what became of them, as JSON lines. docs/replay.md describes the lines.
//
// The writer is recorder.h; replay.h runs a record again. A record may come from anywhere: reading
// one trusts nothing in it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "engine/options.h"
#include "engine/request.h"

namespace di::engine {

/// What shaped the results: the first line.
struct RecordHeader {
  std::string model = {};        ///< name of its folder, without the path
  std::string fingerprint = {};  ///< model_fingerprint()
  std::string backend = {};
  std::string isa = {};
  bool has_content = false;    ///< prompts and outputs are there, not just their hashes
  EngineOptions options = {};  ///< only those that shape results: context (as resolved), replay and
                               ///< replay_keep
};

/// What became of one choice.
struct RecordedChoice {
  int64_t index = 0;
  std::string finish_reason = {};
  int64_t num_tokens = 0;
  std::vector<TokenOutput> tokens = {};  ///< [num_tokens] with content
  std::string token_hash = {};           ///< hash_of(tokens)
  std::string text_hash = {};            ///< SHA-256 of the text

  /// Something else than its own tokens ended it: abort, timeout.
  bool ended_from_outside() const;
};

/// A request that was taken, and its end.
struct RecordedRequest {
  Request request = {};  ///< with the seed that it drew by; without content the prompt, the user,
                         ///< stop strings and forced tokens are missing
  double arrival = 0;    ///< seconds since the engine was open
  int64_t num_prompt_tokens = 0;
  std::string prompt_hash = {};                   ///< hash_of(prompt)
  bool finished = false;                          ///< false: the record ends before the request did
  double end = 0;                                 ///< seconds since the engine was open
  std::vector<TokenOutput> prompt_logprobs = {};  ///< with content
  std::vector<RecordedChoice> choices = {};       ///< [n] of a finished request
};

/// A whole record.
struct Record {
  RecordHeader header = {};
  std::vector<RecordedRequest> requests = {};  ///< in the order in which they came
  bool truncated = false;                      ///< the last line was incomplete and is left out
};

/// Reads a record. `where` names it in messages. Throws Error{kInvalidFile} naming the line that
/// breaks the format; a last line without line end is left out, as an engine that died leaves it.
/// Cost: memory in proportion to the text.
Record parse_record(std::string_view text, const std::string& where);

/// parse_record() of a file. Also throws what reading it throws.
Record read_record(const std::string& path);

/// The line of each kind, without line end. `number` is the request's index in the record; prompts
/// and tokens are in it when `content` says so.
std::string header_line(const RecordHeader& header);
std::string request_line(int64_t number, const RecordedRequest& request, bool content);
std::string finished_line(int64_t number, const RecordedRequest& request, bool content);

/// The name of a model folder, without the path.
std::string model_name(const std::string& folder);

/// A SHA-256 over the names, sizes and edges of a model folder's files: other weights give another
/// one unless they differ in the middle of files alone. Throws what reading the files throws.
std::string model_fingerprint(const std::string& folder);

}  // namespace di::engine
