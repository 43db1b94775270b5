// Choice: the host's half of one sequence. It turns drawn tokens into outputs, text and an end.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/request.h"
#include "engine/step_inputs.h"
#include "text/detokenizer.h"
#include "text/stop_strings.h"

namespace di::engine {

/// What a choice is made of; the same for all choices of a request but for index and seed.
struct ChoiceSpec {
  sched::SequenceId id = sched::kNoSequence;
  int64_t index = 0;
  uint64_t seed = 0;
  int64_t num_prompt_tokens = 0;
  int64_t context = 0;  ///< tokens of prompt and output together
  std::shared_ptr<const sampling::SamplingParams> sampling = {};
  const text::Tokenizer* tokenizer = nullptr;  ///< nullptr: no text
};

/// Thread: the engine's.
class Choice {
 public:
  explicit Choice(const ChoiceSpec& spec);

  /// Takes the draws of a step, up to the one that ends the choice; what is new goes into `news`.
  /// The end is told in news.finish_reason.
  void take(SequenceResult& result, ChoiceOutput& news);

  /// Ends the choice from outside. Held text is released.
  void end(FinishReason reason, const std::string& message, ChoiceOutput& news);

  const ChoiceSpec& spec() const { return spec_; }
  const std::vector<int32_t>& outputs() const { return outputs_; }
  bool ended() const { return finish_reason_.has_value(); }
  std::optional<FinishReason> finish_reason() const { return finish_reason_; }
  /// Most tokens that it can draw.
  int64_t max_tokens() const;

 private:
  void add(sampling::Draw& draw, DrawEnd end_of_draw, ChoiceOutput& news);
  void add_text(int32_t token, ChoiceOutput& news);
  std::optional<FinishReason> limit_reached() const;

  ChoiceSpec spec_;
  std::vector<int32_t> outputs_ = {};
  std::optional<text::Detokenizer> detokenizer_ = {};
  text::StopStrings stop_strings_;
  std::optional<FinishReason> finish_reason_;
};

}  // namespace di::engine
