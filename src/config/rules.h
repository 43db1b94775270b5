// The form of a rule between keys of config.json: a condition and the sentence that is thrown when
// it does not hold. Used by model_rules.cc only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"

namespace di {

/// States rules one after another and throws at the first broken one.
class Rules {
 public:
  explicit Rules(std::string_view where) : where_(where) {}

  /// Throws with the formatted sentence when `holds` is false.
  template <class... Args>
  void require(bool holds, fmt::format_string<Args...> sentence, Args&&... args) const {
    if (holds) return;
    throw Error(
        ErrorCode::kInvalidFile,
        fmt::format("{}: {}", where_, fmt::format(sentence, std::forward<Args>(args)...))
    );
  }

  /// A list of backbone layers must ascend without repetition and stay below num_hidden_layers.
  void require_layers(const char* key, const std::vector<int64_t>& ids, int64_t num_hidden_layers)
      const {
    for (std::size_t i = 0; i < ids.size(); ++i) {
      require(
          ids[i] < num_hidden_layers,
          "{} names layer {}, num_hidden_layers is {}",
          key,
          ids[i],
          num_hidden_layers
      );
      require(
          i == 0 || ids[i - 1] < ids[i],
          "{} lists layer {} after layer {}, expected ascending "
          "ids without repetition",
          key,
          ids[i],
          ids[i == 0 ? 0 : i - 1]
      );
    }
  }

  void require_token(const char* key, int64_t id, int64_t vocab_size) const {
    require(id < vocab_size, "{} is {}, expected an id below vocab_size {}", key, id, vocab_size);
  }

 private:
  std::string_view where_;
};

}  // namespace di
