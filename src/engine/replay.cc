#include "engine/replay.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <map>
#include <thread>

#include <fmt/format.h>

#include "base/error.h"
#include "engine/record_tokens.h"

namespace di::engine {
namespace {

using Clock = std::chrono::steady_clock;

/// What one request said this time.
struct Heard {
  struct Choice {
    std::vector<TokenOutput> tokens = {};
    std::string text = {};
    std::string finish_reason = {};
  };
  std::size_t index = 0;  ///< of the request in the record
  std::vector<TokenOutput> prompt_logprobs = {};
  std::vector<Choice> choices = {};
  bool finished = false;

  void add(Output output) {
    finished = output.finished;
    std::move(
        output.prompt_logprobs.begin(),
        output.prompt_logprobs.end(),
        std::back_inserter(prompt_logprobs)
    );
    for (ChoiceOutput& news : output.choices) {
      Choice& choice = choices[static_cast<std::size_t>(news.index)];
      std::move(news.tokens.begin(), news.tokens.end(), std::back_inserter(choice.tokens));
      choice.text += news.text;
      if (news.finish_reason) choice.finish_reason = name_of(*news.finish_reason);
    }
  }
};

std::string shown(float value) {
  return fmt::format("{} (bits {:08x})", value, std::bit_cast<uint32_t>(value));
}

bool same_bits(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

/// Finds the first difference of one request.
class Comparison {
 public:
  Comparison(const RecordedRequest& recorded, const Heard& heard)
      : recorded_(recorded), heard_(heard) {}

  std::optional<Difference> run() {
    const bool cut_short = std::any_of(
        recorded_.choices.begin(),
        recorded_.choices.end(),
        [](const RecordedChoice& choice) { return choice.ended_from_outside(); }
    );
    compare_tokens(recorded_.prompt_logprobs, heard_.prompt_logprobs, -1, cut_short);
    for (std::size_t i = 0; i < recorded_.choices.size(); ++i)
      compare_choice(recorded_.choices[i], heard_.choices[i]);
    return difference_;
  }

 private:
  void compare_choice(const RecordedChoice& recorded, const Heard::Choice& heard) {
    const bool cut_short = recorded.ended_from_outside();
    compare_tokens(recorded.tokens, heard.tokens, recorded.index, cut_short);
    if (cut_short) return;
    const std::string text_hash = hash_of(heard.text);
    if (recorded.finish_reason != heard.finish_reason) {
      tell(recorded.index, -1, "finish_reason", recorded.finish_reason, heard.finish_reason);
    } else if (recorded.text_hash != text_hash) {
      tell(recorded.index, -1, "text", "hash " + recorded.text_hash, "hash " + text_hash);
    }
  }

  void compare_tokens(
      const std::vector<TokenOutput>& recorded,
      const std::vector<TokenOutput>& heard,
      int64_t choice,
      bool cut_short
  ) {
    const std::size_t common = std::min(recorded.size(), heard.size());
    for (std::size_t i = 0; i < common && !difference_; ++i)
      compare_token(recorded[i], heard[i], choice, static_cast<int64_t>(i));
    if (!cut_short && recorded.size() != heard.size()) {
      const char* what = choice < 0 ? "number of prompt_logprobs" : "number of tokens";
      tell(choice, -1, what, std::to_string(recorded.size()), std::to_string(heard.size()));
    }
  }

  void compare_token(
      const TokenOutput& recorded, const TokenOutput& heard, int64_t choice, int64_t index
  ) {
    if (recorded.token != heard.token) {
      tell(choice, index, "token", std::to_string(recorded.token), std::to_string(heard.token));
    } else if (!same_bits(recorded.logprob, heard.logprob)) {
      tell(choice, index, "logprob", shown(recorded.logprob), shown(heard.logprob));
    } else if (!same_top(recorded.top, heard.top)) {
      tell(choice, index, "top_logprobs", shown(recorded.top), shown(heard.top));
    }
  }

  static bool same_top(
      const std::vector<sampling::TokenLogprob>& a, const std::vector<sampling::TokenLogprob>& b
  ) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
      return x.token == y.token && same_bits(x.logprob, y.logprob);
    });
  }

  static std::string shown(const std::vector<sampling::TokenLogprob>& top) {
    constexpr std::size_t kMost = 5;
    std::string text;
    for (std::size_t i = 0; i < std::min(kMost, top.size()); ++i)
      text += fmt::format("{}{}: {}", i == 0 ? "" : ", ", top[i].token, top[i].logprob);
    return fmt::format("[{}{}]", text, top.size() > kMost ? ", …" : "");
  }
  static std::string shown(float value) { return engine::shown(value); }

  void tell(
      int64_t choice, int64_t token, const char* what, std::string expected, std::string found
  ) {
    if (difference_) return;
    difference_ = Difference{
        .request = static_cast<int64_t>(heard_.index),
        .request_id = recorded_.request.id,
        .choice = choice,
        .token = token,
        .what = what,
        .expected = std::move(expected),
        .found = std::move(found)};
  }

  const RecordedRequest& recorded_;
  const Heard& heard_;
  std::optional<Difference> difference_;
};

class Replayer {
 public:
  Replayer(Engine& engine, const Record& record, const ReplayOptions& options)
      : engine_(engine), record_(record), options_(options) {}

  ReplayReport run() {
    report_.num_requests = std::ssize(record_.requests);
    while (next_ < record_.requests.size() || engine_.has_work()) {
      add_requests();
      if (!engine_.has_work()) {
        wait_for_arrival();
        continue;
      }
      for (Output& output : engine_.step())
        take(std::move(output));
      if (options_.on_step && !options_.on_step()) break;
    }
    return std::move(report_);
  }

 private:
  double now() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

  /// When the next request comes, in seconds of this replay.
  double next_arrival() const {
    return options_.speed == 0 ? 0 : record_.requests[next_].arrival / options_.speed;
  }

  void add_requests() {
    while (next_ < record_.requests.size() && next_arrival() <= now()) {
      const RecordedRequest& recorded = record_.requests[next_];
      Request request = recorded.request;
      request.id = std::to_string(next_);  // an id of the record may come again
      request.timeout_seconds = 0;
      const std::optional<Refusal> refusal = engine_.add(request);
      if (refusal && refusal->code == ErrorCode::kBusy && engine_.has_work()) return;
      if (refusal) {
        note(
            {.request = static_cast<int64_t>(next_),
             .request_id = recorded.request.id,
             .what = "refused",
             .expected = "taken",
             .found = refusal->message}
        );
      } else {
        Heard& heard = live_[request.id];
        heard.index = next_;
        heard.choices.resize(static_cast<std::size_t>(request.sampling.n));
        abort_if_due(request.id, heard);
      }
      ++next_;
    }
  }

  void wait_for_arrival() const {
    if (next_ >= record_.requests.size()) return;
    const double seconds = next_arrival() - now();
    if (seconds > 0) std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  }

  void take(Output output) {
    const std::string id = output.request_id;
    Heard& heard = live_.at(id);
    heard.add(std::move(output));
    if (!heard.finished) {
      abort_if_due(id, heard);
      return;
    }
    const RecordedRequest& recorded = record_.requests[heard.index];
    if (recorded.finished) {
      ++report_.num_compared;
      for (const Heard::Choice& choice : heard.choices)
        report_.num_tokens += std::ssize(choice.tokens);
      if (auto difference = Comparison(recorded, heard).run()) note(std::move(*difference));
    }
    live_.erase(id);
  }

  /// Aborts what was ended from outside, once it has come as far as it had then.
  void abort_if_due(const std::string& id, const Heard& heard) {
    const RecordedRequest& recorded = record_.requests[heard.index];
    bool any_outside = false;
    for (std::size_t i = 0; i < recorded.choices.size(); ++i) {
      const RecordedChoice& choice = recorded.choices[i];
      any_outside = any_outside || choice.ended_from_outside();
      const bool has_ended = !heard.choices[i].finish_reason.empty();
      if (!has_ended && (!choice.ended_from_outside() ||
                         std::ssize(heard.choices[i].tokens) < choice.num_tokens)) {
        return;
      }
    }
    if (any_outside) engine_.abort(id);
  }

  void note(Difference difference) {
    ++report_.num_different;
    if (!report_.first || difference.request < report_.first->request) {
      report_.first = std::move(difference);
    }
  }

  Engine& engine_;
  const Record& record_;
  const ReplayOptions& options_;
  const Clock::time_point start_ = Clock::now();
  std::size_t next_ = 0;  // request to add
  std::map<std::string, Heard> live_;
  ReplayReport report_;
};

}  // namespace

std::string describe(const Difference& difference) {
  std::string place = fmt::format("request {} (\"{}\")", difference.request, difference.request_id);
  if (difference.choice >= 0) place += fmt::format(", choice {}", difference.choice);
  if (difference.choice < 0 && difference.token >= 0) place += ", prompt logprobs";
  if (difference.token >= 0) place += fmt::format(", token {}", difference.token);
  return fmt::format(
      "{}: {} is {}, the record has {}",
      place,
      difference.what,
      difference.found,
      difference.expected
  );
}

ReplayReport replay(Engine& engine, const Record& record, const ReplayOptions& options) {
  if (!record.header.has_content) {
    throw Error(
        ErrorCode::kUnsupported,
        "the record holds no prompts, so nothing can be run again; record with --record-content"
    );
  }
  return Replayer(engine, record, options).run();
}

}  // namespace di::engine
