#include "config/rules.h"

#include <cstddef>

#include <fmt/format.h>

#include "base/error.h"

namespace di {

void Rules::require(bool holds, const std::string& sentence) const {
  if (!holds) throw Error(ErrorCode::kInvalidFile, fmt::format("{}: {}", where_, sentence));
}

void Rules::require_layers(
    const char* key, const std::vector<int64_t>& ids, int64_t num_hidden_layers
) const {
  for (std::size_t i = 0; i < ids.size(); ++i) {
    require(
        ids[i] < num_hidden_layers,
        fmt::format("{} names layer {}, num_hidden_layers is {}", key, ids[i], num_hidden_layers)
    );
    if (i == 0) continue;
    require(
        ids[i - 1] < ids[i],
        fmt::format(
            "{} lists layer {} after layer {}, expected ascending ids without repetition",
            key,
            ids[i],
            ids[i - 1]
        )
    );
  }
}

void Rules::require_token(const char* key, int64_t id, int64_t vocab_size) const {
  require(
      id < vocab_size,
      fmt::format("{} is {}, expected an id below vocab_size {}", key, id, vocab_size)
  );
}

}  // namespace di
