#include "model/session.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/error.h"
#include "ops/place.h"

namespace di::model {

Session::Session(
    const Model& model,
    cache::KvCache& cache,
    const ops::OpTable& ops,
    ops::Exec& exec,
    const ForwardOptions& options
)
    : model_(model), cache_(cache), ops_(ops), exec_(exec), options_(options), state_(cache) {}

void Session::check_token(int32_t token) const {
  if (token >= 0 && token < model_.config.vocab_size) return;
  throw Error(
      ErrorCode::kInvalidArgument,
      fmt::format("token id {} is outside the vocabulary of {}", token, model_.config.vocab_size)
  );
}

std::vector<float> Session::feed(
    std::span<const int32_t> tokens, LogitRows logits, const ImageRows& images
) {
  const int64_t start = std::ssize(tokens_);
  const int64_t end = start + std::ssize(tokens);
  for (const int32_t token : tokens)
    check_token(token);
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
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  is_image_.insert(is_image_.end(), images.is_image.begin(), images.is_image.end());
  is_image_.resize(tokens_.size(), 0);
  try {
    return run(start, logits, images);
  } catch (...) {
    tokens_.resize(static_cast<std::size_t>(start));
    is_image_.resize(tokens_.size());
    throw;
  }
}

std::vector<float> Session::run(int64_t start, LogitRows logits, const ImageRows& images) {
  const Arena::Scope scope(exec_.scratch);
  const View<const int32_t, 1> tokens = ops::place(exec_, tokens_);
  const View<const uint8_t, 1> is_image = ops::place(exec_, is_image_);
  const bool any_image = std::find(is_image_.begin(), is_image_.end(), 1) != is_image_.end();
  Step step;
  step.sequences.push_back(
      {.tokens = {tokens.data, tokens_.size()},
       .start = start,
       .slot = state_.slot(),
       .block_table = ops::place(exec_, state_.block_table()).data,
       .prompt_length = prompt_length_,
       .logits = logits,
       .is_image =
           any_image ? std::span(is_image.data, tokens_.size()) : std::span<const uint8_t>(),
       .embeddings = images.embeddings}
  );
  return ops::fetch(exec_, forward(model_, step, cache_, ops_, exec_, options_).logits);
}

Drafts Session::draft(int32_t anchor, int64_t length) {
  check_token(anchor);
  const Arena::Scope scope(exec_.scratch);
  std::vector<int32_t> all = tokens_;
  all.push_back(anchor);
  const View<const int32_t, 1> tokens = ops::place(exec_, all);
  const DraftStep step{
      .sequences =
          {{.tokens = {tokens.data, all.size()},
            .slot = state_.slot(),
            .prompt_length = prompt_length_}},
      .anchors = View<const int32_t, 1>(tokens.row(std::ssize(tokens_)), 1),
      .length = length};
  const DraftOutput output = model::draft(model_, step, cache_, ops_, exec_, options_);
  return {
      ops::fetch(exec_, output.tokens),
      ops::fetch(exec_, output.confidence),
      ops::fetch(exec_, output.logits)};
}

}  // namespace di::model
