#include "model/session.h"

#include <fmt/format.h>

#include "base/error.h"

namespace di::model {

Session::Session(
    const Model& model,
    cache::KvCache& cache,
    const ops::OpTable& ops,
    ops::Exec& exec,
    const ForwardOptions& options
)
    : model_(model), cache_(cache), ops_(ops), exec_(exec), options_(options), state_(cache) {}

std::vector<float> Session::feed(
    std::span<const int32_t> tokens, LogitRows logits, const ImageRows& images
) {
  const int64_t start = std::ssize(tokens_);
  const int64_t end = start + std::ssize(tokens);
  for (const int32_t token : tokens) {
    if (token < 0 || token >= model_.config.vocab_size) {
      throw Error(
          ErrorCode::kInvalidArgument,
          fmt::format(
              "token id {} is outside the vocabulary of {}", token, model_.config.vocab_size
          )
      );
    }
  }
  if (end > model_.config.max_position_embeddings) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format(
            "{} tokens exceed max_position_embeddings {}",
            end,
            model_.config.max_position_embeddings
        )
    );
  }
  state_.reserve_tokens(end);
  Step step;
  step.sequences.push_back(
      {.tokens = tokens,
       .start = start,
       .history = tokens_,
       .slot = state_.slot(),
       .block_table = state_.block_table(),
       .prompt_length = prompt_length_,
       .logits = logits,
       .is_image = images.is_image,
       .history_is_image = is_image_,
       .embeddings = images.embeddings}
  );
  StepOutput output = forward(model_, step, cache_, ops_, exec_, options_);
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  is_image_.insert(is_image_.end(), images.is_image.begin(), images.is_image.end());
  is_image_.resize(tokens_.size(), 0);
  return std::move(output.logits);
}

}  // namespace di::model
