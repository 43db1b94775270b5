// Traffic is decided by its seed, and as long and as frequent as its laws say.
#include "bench/traffic.h"

#include <cmath>

#include <gtest/gtest.h>

#include "base/error.h"

namespace di::bench {
namespace {

const TrafficModel kModel{.vocab_size = 500, .context = 1 << 20};

/// Mean and spread of the logarithms.
struct LogMoments {
  double mean = 0;
  double spread = 0;
};

template <class Length>
LogMoments log_moments(const std::vector<TrafficRequest>& traffic, Length&& length) {
  double sum = 0;
  double squares = 0;
  for (const TrafficRequest& request : traffic) {
    const double value = std::log(static_cast<double>(length(request)));
    sum += value;
    squares += value * value;
  }
  const auto count = static_cast<double>(traffic.size());
  return {sum / count, std::sqrt(squares / count - sum / count * sum / count)};
}

int64_t prompt_length(const TrafficRequest& request) {
  return std::ssize(request.prompt);
}
int64_t output_length(const TrafficRequest& request) {
  return request.output_tokens;
}

TEST(Traffic, IsTheSameForTheSameSeed) {
  for (const std::string& name : traffic_names()) {
    const TrafficOptions options{.lengths = name, .num_requests = 50, .rate = 3, .seed = 7};
    const auto a = make_traffic(options, kModel);
    const auto b = make_traffic(options, kModel);
    ASSERT_EQ(a.size(), 50u);
    for (std::size_t i = 0; i < a.size(); ++i) {
      EXPECT_EQ(a[i].arrival_seconds, b[i].arrival_seconds) << name;
      EXPECT_EQ(a[i].prompt, b[i].prompt) << name;
      EXPECT_EQ(a[i].output_tokens, b[i].output_tokens) << name;
    }
  }
}

TEST(Traffic, DiffersBetweenSeeds) {
  const auto a = make_traffic({.num_requests = 20, .seed = 1}, kModel);
  const auto b = make_traffic({.num_requests = 20, .seed = 2}, kModel);
  int same = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    same += a[i].prompt == b[i].prompt ? 1 : 0;
  EXPECT_EQ(same, 0);
}

TEST(Traffic, KeepsLengthsAndPromptsWhateverTheRate) {
  const auto slow = make_traffic({.num_requests = 20, .rate = 1}, kModel);
  const auto fast = make_traffic({.num_requests = 20, .rate = 100}, kModel);
  const auto at_once = make_traffic({.num_requests = 20}, kModel);
  for (std::size_t i = 0; i < slow.size(); ++i) {
    EXPECT_EQ(slow[i].prompt, fast[i].prompt);
    EXPECT_EQ(slow[i].output_tokens, at_once[i].output_tokens);
    EXPECT_NEAR(slow[i].arrival_seconds, 100 * fast[i].arrival_seconds, 1e-9);
    EXPECT_EQ(at_once[i].arrival_seconds, 0);
  }
}

TEST(Traffic, OfChatsHasThePublishedMeansAndASpreadOfItsLaw) {
  const auto traffic = make_traffic({.lengths = "chat", .num_requests = 20000}, kModel);
  const LogMoments prompts = log_moments(traffic, prompt_length);
  EXPECT_NEAR(prompts.mean, std::log(kChatPrompts.mean) - 1.2 * 1.2 / 2, 0.03);
  EXPECT_NEAR(prompts.spread, 1.2, 0.03);
  const LogMoments outputs = log_moments(traffic, output_length);
  EXPECT_NEAR(outputs.mean, std::log(kChatOutputs.mean) - 0.9 * 0.9 / 2, 0.03);
  EXPECT_NEAR(outputs.spread, 0.9, 0.03);
  double sum = 0;
  for (const TrafficRequest& request : traffic)
    sum += static_cast<double>(request.output_tokens);
  EXPECT_NEAR(sum / 20000, kChatOutputs.mean, 0.03 * kChatOutputs.mean);
}

TEST(Traffic, ArrivesAtRandomAtTheRate) {
  const auto traffic = make_traffic(
      {.lengths = "fixed", .num_requests = 20000, .prompt_tokens = 1, .rate = 5}, kModel
  );
  EXPECT_NEAR(traffic.back().arrival_seconds, 20000 / 5.0, 100);
  double squares = 0;
  double before = 0;
  for (const TrafficRequest& request : traffic) {
    const double gap = request.arrival_seconds - before;
    ASSERT_GE(gap, 0);
    squares += gap * gap;
    before = request.arrival_seconds;
  }
  EXPECT_NEAR(squares / 20000, 2 / (5.0 * 5.0), 0.006) << "as of exponential gaps";
}

TEST(Traffic, OfFixedLengthsIsAsLongAsAskedFor) {
  const auto traffic = make_traffic(
      {.lengths = "fixed", .num_requests = 9, .prompt_tokens = 33, .output_tokens = 5}, kModel
  );
  for (const TrafficRequest& request : traffic) {
    EXPECT_EQ(prompt_length(request), 33);
    EXPECT_EQ(request.output_tokens, 5);
    for (const int32_t id : request.prompt) {
      EXPECT_GE(id, 0);
      EXPECT_LT(id, kModel.vocab_size);
    }
  }
}

TEST(Traffic, HasOneLongPromptAmongTwenty) {
  const auto traffic = make_traffic(
      {.lengths = "long-among-short", .num_requests = 200, .prompt_tokens = 50}, kModel
  );
  int num_long = 0;
  for (const TrafficRequest& request : traffic) {
    if (prompt_length(request) == 32 * 50) {
      ++num_long;
    } else {
      EXPECT_LE(prompt_length(request), 2 * 50);
    }
  }
  EXPECT_EQ(num_long, 10);
}

TEST(Traffic, FitsTheContext) {
  for (const std::string& name : traffic_names()) {
    for (const int64_t context : {4, 64, 300}) {
      const TrafficModel model{.vocab_size = 10, .context = context};
      for (const TrafficRequest& request :
           make_traffic({.lengths = name, .num_requests = 200}, model)) {
        EXPECT_GE(prompt_length(request), 1);
        EXPECT_GE(request.output_tokens, 1);
        EXPECT_LE(prompt_length(request) + request.output_tokens, context);
      }
    }
  }
}

TEST(Traffic, TakesPromptsFromATextWhenThereIsOne) {
  TrafficModel model = kModel;
  for (int32_t id = 0; id < 40; ++id)
    model.text.push_back(id);
  for (const TrafficRequest& request :
       make_traffic({.lengths = "fixed", .num_requests = 5, .prompt_tokens = 100}, model)) {
    for (std::size_t i = 1; i < request.prompt.size(); ++i)
      EXPECT_EQ(request.prompt[i], (request.prompt[i - 1] + 1) % 40);
  }
}

TEST(Traffic, RefusesWhatItDoesNotKnow) {
  EXPECT_THROW(make_traffic({.lengths = "none"}, kModel), Error);
  EXPECT_THROW(make_traffic({.num_requests = -1}, kModel), Error);
  EXPECT_THROW(make_traffic({.rate = -1}, kModel), Error);
  EXPECT_THROW(make_traffic({}, {.vocab_size = 10, .context = 2}), Error);
}

}  // namespace
}  // namespace di::bench
