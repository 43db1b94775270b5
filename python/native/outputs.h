// What a request has told so far, in columns, so that numpy can look at them without a copy.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/request.h"

namespace di::python {

/// Tokens and what is told beside them, one entry a token.
struct TokenColumns {
  std::vector<int32_t> ids = {};
  std::vector<float> logprobs = {};
  std::vector<int32_t> top_ids = {};     ///< best tokens of all tokens, one after another
  std::vector<float> top_logprobs = {};  ///< as top_ids
  std::vector<int64_t> top_ends = {};    ///< where in top_ids each token's best ones end

  void append(const engine::TokenOutput& token);
  void append(const TokenColumns& other);
  int64_t size() const { return std::ssize(ids); }
};

/// What a request wants to be told beside its tokens; the rest is None in Python.
struct AskedFor {
  bool logprobs = false;
  bool top_logprobs = false;
  bool prompt_logprobs = false;
};

/// One choice.
struct CompletionOutput {
  int64_t index = 0;
  AskedFor asked_for = {};
  std::string text = {};
  TokenColumns tokens = {};
  std::string finish_reason = {};  ///< empty while it goes on
  std::string message = {};

  void append(const engine::ChoiceOutput& news);
  void append(const CompletionOutput& later);
};

/// One request: all of it, or the news since the last time, as whoever gathers it decides.
struct RequestOutput {
  std::string request_id = {};
  int64_t num_prompt_tokens = 0;
  AskedFor asked_for = {};
  std::vector<std::shared_ptr<CompletionOutput>> outputs = {};  ///< by index
  TokenColumns prompt = {};  ///< prompt tokens from the second on, when their logprobs are wanted
  bool finished = false;

  /// An output of the same request that says nothing yet.
  RequestOutput without_news() const;

  void append(const engine::Output& news);
  void append(const RequestOutput& later);

 private:
  CompletionOutput& choice(int64_t index);
};

/// What `request` will be told in; says nothing yet.
RequestOutput empty_output(const engine::Request& request);

}  // namespace di::python
