#include "engine/draft_trial.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "engine/draft_passes.h"
#include "sampling/draft_verifier.h"

namespace di::engine {
namespace {

/// What the target draws at an anchor and behind each draft that it accepts.
struct Verdict {
  std::vector<int32_t> draws;
  int64_t accepted = 0;
  bool ended = false;  // by the last draw
  bool finite = true;
};

/// Tokens that a course passes at most.
int64_t length_of(const DraftCourse& course) {
  return course.text.empty() ? course.sampling.max_tokens : std::ssize(course.text);
}

class Trials {
 public:
  Trials(
      const DraftTrialParts& parts,
      std::span<const DraftCourse> courses,
      const DraftTrialOptions& options,
      const DraftTrialProgress& progress
  )
      : parts_(parts),
        passes_(parts, options),
        courses_(courses),
        options_(options),
        progress_(progress),
        blocks_(courses.size()) {
    for (const DraftCourse& course : courses)
      total_ += length_of(course);
  }

  std::vector<sched::JudgedText> run() {
    while (true) {
      while (std::ssize(runners_) < options_.num_sequences && next_ < courses_.size())
        start(next_++);
      leave_behind();
      if (runners_.empty() && next_ == courses_.size()) return std::move(blocks_);
      if (!runners_.empty()) round();
      leave_behind();
      tell();
    }
  }

 private:
  /// Computes a prompt and finds the first anchor.
  void start(std::size_t index) {
    const DraftCourse& course = courses_[index];
    check(course, index);
    runners_.push_back(std::make_unique<DraftRunner>(course, index, parts_.cache));
    DraftRunner& runner = *runners_.back();
    const std::vector<float> logits = passes_.prefill(runner, course.text.empty());
    if (!course.text.empty()) {
      runner.tokens.push_back(course.text.front());
      runner.done = course.text.size() == 1;
      return;
    }
    sampling::Sampler sampler = sampler_of(runner);
    const Verdict verdict = judge(runner, sampler, {}, logits);
    runner.done = !verdict.finite || verdict.ended;
    if (!runner.done) follow(runner, verdict);
  }

  void check(const DraftCourse& course, std::size_t index) const {
    const int64_t most = options_.context - 1 - options_.length;
    const int64_t found = std::ssize(course.prompt);
    if (found < 1 || found > most) {
      throw Error(
          ErrorCode::kInvalidArgument,
          fmt::format(
              "prompt {} has {} tokens; 1 to {} leave room for {} drafts in a context of {}",
              index + 1,
              found,
              most,
              options_.length,
              options_.context
          )
      );
    }
    const int64_t vocab_size = parts_.model.config.vocab_size;
    for (const auto* tokens : {&course.prompt, &course.text}) {
      for (const int32_t token : *tokens) {
        if (token >= 0 && token < vocab_size) continue;
        throw Error(
            ErrorCode::kInvalidArgument,
            fmt::format("token id {} is outside the vocabulary of {}", token, vocab_size)
        );
      }
    }
    sampling::validate(course.sampling, vocab_size);
  }

  /// Drafts for all runners, and what the target makes of them.
  void round() {
    std::vector<sampling::Sampler> samplers;
    for (const auto& runner : runners_)
      samplers.push_back(sampler_of(*runner));
    const std::vector<RunnerDrafts> drafts = passes_.draft(runners_, samplers);
    const std::vector<float> logits = passes_.verify(runners_, drafts);
    const std::size_t row = logits.size() / drafts.size();
    for (std::size_t r = 0; r < drafts.size(); ++r) {
      const std::span rows = std::span(logits).subspan(r * row, row);
      take(*runners_[r], drafts[r], judge(*runners_[r], samplers[r], drafts[r].tokens, rows));
    }
  }

  sampling::Sampler sampler_of(const DraftRunner& runner) const {
    const DraftCourse& course = runner.course;
    const auto eos = static_cast<int32_t>(parts_.model.config.tokens.eos_token_id);
    const std::span outputs = std::span(runner.tokens).subspan(course.prompt.size());
    return {course.sampling, eos, course.seed, course.prompt, outputs};
  }

  /// Draws from the rows behind the runner's newest token and behind `drafts`.
  Verdict judge(
      const DraftRunner& runner,
      sampling::Sampler& sampler,
      std::span<const int32_t> drafts,
      std::span<const float> logits
  ) {
    const int64_t vocab = parts_.model.config.vocab_size;
    const sampling::VerifiedDraws verified = sampling::verify_drafts(
        sampler,
        sampling::VerificationRule::kExactSeed,
        {.logits = View<const float, 2>(logits.data(), std::ssize(drafts) + 1, vocab),
         .drafts = drafts,
         .laws = {},
         .anchor_position = std::ssize(runner.tokens) - 1},
        scratch_
    );
    Verdict verdict{.draws = {}, .accepted = verified.accepted};
    for (const sampling::Draw& draw : verified.draws) {
      verdict.finite = draw.finite;
      if (draw.finite) verdict.draws.push_back(draw.token);
    }
    verdict.ended = verdict.finite && sampler.is_end(verdict.draws.back());
    return verdict;
  }

  /// Keeps a block that was judged, and moves on.
  void take(DraftRunner& runner, const RunnerDrafts& drafts, const Verdict& verdict) {
    sched::JudgedBlock block{.confidence = drafts.confidence, .accepted = verdict.accepted};
    const bool usable = std::all_of(block.confidence.begin(), block.confidence.end(), [](float c) {
      return std::isfinite(c);
    });
    runner.done = !usable || !verdict.finite;
    if (runner.done) return;
    // Nothing is judged behind an accepted end token.
    const auto accepted = static_cast<std::size_t>(verdict.accepted);
    if (verdict.ended && accepted == verdict.draws.size()) block.confidence.resize(accepted);
    blocks_[runner.index].push_back(std::move(block));
    follow(runner, verdict);
  }

  /// Appends the tokens up to the next anchor.
  void follow(DraftRunner& runner, const Verdict& verdict) {
    const DraftCourse& course = runner.course;
    const bool own = course.text.empty();
    const auto from = static_cast<std::size_t>(runner.num_outputs());
    const auto accepted = static_cast<std::size_t>(verdict.accepted);
    const std::span<const int32_t> text =
        own ? std::span(verdict.draws) : std::span(course.text).subspan(from);
    for (std::size_t i = 0; i < text.size(); ++i) {
      runner.tokens.push_back(text[i]);
      const bool foretold = i < accepted && verdict.draws[i] == text[i];
      if (!foretold) break;
    }
    const bool at_end = own ? verdict.ended : runner.num_outputs() == std::ssize(course.text);
    runner.done = at_end || runner.num_outputs() >= length_of(course) ||
                  std::ssize(runner.tokens) + options_.length > options_.context;
  }

  /// Takes out the runners that are done.
  void leave_behind() {
    for (const auto& runner : runners_) {
      if (runner->done) finished_ += length_of(runner->course);
    }
    std::erase_if(runners_, [](const auto& runner) { return runner->done; });
  }

  void tell() const {
    if (!progress_) return;
    int64_t done = finished_;
    for (const auto& runner : runners_)
      done += runner->num_outputs();
    progress_(std::min(done, total_), total_);
  }

  const DraftTrialParts& parts_;
  DraftPasses passes_;
  std::span<const DraftCourse> courses_;
  const DraftTrialOptions& options_;
  const DraftTrialProgress& progress_;
  DraftRunners runners_;
  std::vector<sched::JudgedText> blocks_;  // by course
  sampling::RowsScratch scratch_;          // of draws
  std::size_t next_ = 0;                   // course to start
  int64_t total_ = 0;                      // tokens of all courses
  int64_t finished_ = 0;                   // of those that are done
};

}  // namespace

std::vector<sched::JudgedText> run_draft_trials(
    const DraftTrialParts& parts,
    std::span<const DraftCourse> courses,
    const DraftTrialOptions& options,
    const DraftTrialProgress& progress
) {
  return Trials(parts, courses, options, progress).run();
}

}  // namespace di::engine
