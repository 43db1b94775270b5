// The form of a rule between keys of config.json: a condition and the sentence that is thrown when
// it does not hold. Used by model_rules.cc only.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace di {

/// States rules one after another; the first broken one throws Error{kInvalidFile} "where:
/// sentence".
class Rules {
 public:
  explicit Rules(std::string_view where) : where_(where) {}

  /// Throws `sentence` when `holds` is false.
  void require(bool holds, const std::string& sentence) const;

  /// A list of backbone layers must ascend without repetition and stay below num_hidden_layers.
  void require_layers(const char* key, const std::vector<int64_t>& ids, int64_t num_hidden_layers)
      const;

  /// A token id must be below vocab_size.
  void require_token(const char* key, int64_t id, int64_t vocab_size) const;

 private:
  std::string_view where_;
};

}  // namespace di
