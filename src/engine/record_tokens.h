// Tokens of a record: to and from JSON with every bit, and hashes of them.
//
// Tokens are {"ids": [id, …], "logprobs": hex, "top": [hex, …]}: 8 hexadecimal digits a float; an
// entry of top is pairs of id and logprob. The last two are there where there are any.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "engine/request.h"

namespace di::engine {

/// A token id. Throws Error{kInvalidFile} when it is none.
int32_t token_of(const Json& json);

Json tokens_json(const std::vector<TokenOutput>& tokens);

/// The opposite. Throws Error{kInvalidFile} for what tokens_json() does not write.
std::vector<TokenOutput> tokens_from(const Json& json);

/// A SHA-256 over every bit of the tokens, or of a text.
std::string hash_of(const std::vector<TokenOutput>& tokens);
std::string hash_of(const std::vector<int32_t>& tokens);
std::string hash_of(const std::string& text);

}  // namespace di::engine
