// The default model against its golden files: every greedy token with its margin, the five best
// logits, every draft, the probability of every prompt token, perplexity, and the constants of the
// n-gram hash.
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <string>

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/isa.h"
#include "base/sha256.h"
#include "engine/loaded_model.h"
#include "golden_run.h"

namespace di::golden {
namespace {

/// Golden logits are rounded to five decimals and margins to four; the rest is what the last bits
/// of fp32 logits may do.
constexpr double kLogitTolerance = 1e-3;
constexpr double kNllTolerance = 1e-4;

const std::string kFolder = DI_SEEDLING;

/// The innermost integers of nested lists, in order.
void flatten(const Json& value, std::vector<int64_t>& values) {
  if (!value.is_array()) {
    values.push_back(value.as_integer());
    return;
  }
  for (const Json& inner : value.as_array())
    flatten(inner, values);
}

/// work(i) for i below `count`, on all threads: the pieces are whole sequences.
void in_parallel(std::size_t count, const std::function<void(std::size_t)>& work) {
  ThreadPool pool;
  pool.parallel_for(static_cast<int64_t>(count), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      work(static_cast<std::size_t>(i));
  });
}

struct Backend {
  const char* name;
  const ops::OpTable& (*ops)();
};

const ops::OpTable& best_cpu_ops() {
  return ops::cpu_ops(best_isa(detect_cpu()));
}

const ops::OpTable& canonical_cuda_ops() {
  return engine::select_ops("cuda", "", "canonical");
}

/// All that give the golden numbers; cuda where there is a device.
std::vector<Backend> backends() {
  std::vector<Backend> all = {{"ref", ops::ref_ops}, {"cpu", best_cpu_ops}};
  try {
    canonical_cuda_ops();
    all.push_back({"cuda_canonical", canonical_cuda_ops});
  } catch (const Error&) {  // no device
  }
  return all;
}

class Golden : public testing::TestWithParam<Backend> {
 protected:
  ThreadPool pool_;
  const ops::OpTable& ops_ = GetParam().ops();
  const verify::LoadedModel model_ = verify::load_for_verify(kFolder, ops_, pool_);
  const GoldenRunner runner_{model_, ops_};
};

void expect_top5(const Json& golden, const GreedyRun& run) {
  for (std::size_t step = 0; step < golden.as_array().size(); ++step) {
    for (std::size_t i = 0; i < 5; ++i) {
      const Json::Array& expected = golden.as_array()[step].as_array()[i].as_array();
      EXPECT_EQ(run.top[step][i].id, expected[0].as_integer()) << "step " << step;
      EXPECT_NEAR(run.top[step][i].logit, expected[1].as_number(), kLogitTolerance);
    }
  }
}

void expect_nll(const Json::Array& golden, const std::vector<double>& nll) {
  ASSERT_EQ(nll.size(), golden.size());
  for (std::size_t i = 0; i < nll.size(); ++i)
    EXPECT_NEAR(nll[i], golden[i].as_number(), kNllTolerance) << "prompt token " << i + 1;
}

void expect_case(const Json& golden, const GreedyRun& run) {
  SCOPED_TRACE(golden.at("prompt").as_string());
  EXPECT_EQ(run.tokens, integers<int32_t>(golden.at("output_ids")));
  const Json::Array& margins = golden.at("margin").as_array();
  for (std::size_t i = 0; i < margins.size(); ++i)
    EXPECT_NEAR(run.margin(i), margins[i].as_number(), kLogitTolerance) << "step " << i;
  if (const Json* top5 = golden.find("top5")) expect_top5(*top5, run);
  if (const Json* nll = golden.find("prompt_nll")) expect_nll(nll->as_array(), run.prompt_nll);
}

TEST_P(Golden, EveryGreedyTokenComesOutWithItsMargin) {
  const Json golden = read_golden("golden.json");
  std::vector<Json> cases = golden.at("cases").as_array();
  cases.insert(cases.begin(), golden.at("long"));  // the longest one first
  std::vector<GreedyRun> runs(cases.size());
  in_parallel(cases.size(), [&](std::size_t i) {
    runs[i] = runner_.greedy(
        integers<int32_t>(cases[i].at("prompt_ids")), cases[i].at("output_ids").as_array().size()
    );
  });
  for (std::size_t i = 0; i < cases.size(); ++i)
    expect_case(cases[i], runs[i]);
}

/// Every recorded draft block of a case: its tokens, and its confidences to their four decimals.
void expect_drafts(const Json& golden, const std::vector<model::Drafts>& drafts) {
  SCOPED_TRACE(golden.at("prompt").as_string());
  const std::size_t first = golden.at("prompt_ids").as_array().size();
  ASSERT_EQ(drafts.size(), golden.at("drafts").as_object().size());
  for (std::size_t i = 0; i < drafts.size(); ++i) {
    const std::string position = std::to_string(first + i);
    EXPECT_EQ(drafts[i].tokens, integers<int32_t>(golden.at("drafts").at(position)));
    const Json::Array& confidence = golden.at("confidence").at(position).as_array();
    for (std::size_t j = 0; j < confidence.size(); ++j) {
      const double found = 1 / (1 + std::exp(-drafts[i].confidence[j]));
      EXPECT_NEAR(found, confidence[j].as_number(), 1e-4) << "position " << position;
    }
  }
}

TEST_P(Golden, EveryDraftComesOutWithItsConfidence) {
  const Json golden = read_golden("golden.json");
  std::vector<Json> cases = golden.at("cases").as_array();
  cases.insert(cases.begin(), golden.at("long"));
  std::vector<std::vector<model::Drafts>> drafts(cases.size());
  in_parallel(cases.size(), [&](std::size_t i) {
    drafts[i] = runner_.drafts(
        integers<int32_t>(cases[i].at("prompt_ids")),
        integers<int32_t>(cases[i].at("output_ids")),
        cases[i].at("drafts").as_object().size()
    );
  });
  for (std::size_t i = 0; i < cases.size(); ++i)
    expect_drafts(cases[i], drafts[i]);
}

TEST(GoldenDrafts, TextsAreTheSameWithAnyNumberOfThemAndMostPay) {
  ThreadPool pool;
  const verify::LoadedModel model = verify::load_for_verify(kFolder, best_cpu_ops(), pool);
  const GoldenRunner runner(model, best_cpu_ops());
  const Json golden = read_golden("golden.json");
  std::vector<Json> cases = golden.at("cases").as_array();
  cases.insert(cases.begin(), golden.at("long"));
  std::vector<std::vector<DraftedRun>> runs(cases.size());
  in_parallel(cases.size(), [&](std::size_t i) {
    for (const int64_t length : {5, 1, 3}) {
      const auto count = std::ssize(cases[i].at("output_ids").as_array());
      runs[i].push_back(runner.drafted(
          integers<int32_t>(cases[i].at("prompt_ids")),
          {.temperature = 0, .max_tokens = count, .ignore_eos = true},
          {.length = length}
      ));
    }
  });
  int64_t steps = 0, tokens = 0;  // of the short cases, without the prefills and their tokens
  for (std::size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(cases[i].at("prompt").as_string());
    for (const DraftedRun& run : runs[i])
      EXPECT_EQ(run.tokens, integers<int32_t>(cases[i].at("output_ids")));
    if (i == 0) continue;
    steps += runs[i].front().steps;
    tokens += std::ssize(runs[i].front().tokens) - 1;
  }
  // 2.40 tokens a step, where the model's own page counts 2.42.
  EXPECT_EQ(tokens, 658);
  EXPECT_EQ(steps, 274);
}

TEST_P(Golden, PerplexityOfTheTwoTextsIsTheRecordedOne) {
  const Json golden = read_golden("ppl.json");
  const Json::Array& samples = golden.at("samples").as_array();
  std::vector<double> mean(samples.size());
  in_parallel(samples.size(), [&](std::size_t i) {
    const std::vector<double> nll = runner_.nll(integers<int32_t>(samples[i].at("tokens")));
    mean[i] = std::accumulate(nll.begin(), nll.end(), 0.0) / static_cast<double>(nll.size());
  });
  for (std::size_t i = 0; i < samples.size(); ++i)
    EXPECT_NEAR(mean[i], samples[i].at("nll").as_number(), 1e-5);
}

INSTANTIATE_TEST_SUITE_P(
    EveryBackend,
    Golden,
    testing::ValuesIn(backends()),
    [](const testing::TestParamInfo<Backend>& backend) { return std::string(backend.param.name); }
);

class GoldenEngram : public testing::Test {
 protected:
  ThreadPool pool_{1};
  const verify::LoadedModel model_ = verify::load_for_verify(kFolder, ops::ref_ops(), pool_);
  const model::EngramHashing& hashing_ = model_.model.engram_hashing;
  const Json golden_ = read_golden("golden.json");
  const Json& engram_ = golden_.at("engram");
};

TEST_F(GoldenEngram, TheTokenMapHasTheRecordedDigest) {
  const View<const int32_t, 1>& map = hashing_.token_map;
  const std::span ids(map.data, static_cast<std::size_t>(map.size()));
  EXPECT_EQ(sha256_hex(std::as_bytes(ids)), engram_.at("token_map_int32le_sha256").as_string());
}

TEST_F(GoldenEngram, TheHashConstantsAreTheRecordedOnes) {
  std::vector<int64_t> primes, multipliers;
  const auto append = [](const View<const int64_t, 1>& from, std::vector<int64_t>& to) {
    to.insert(to.end(), from.data, from.data + from.size());
  };
  for (const model::EngramHashConstants& hash : hashing_.layers) {
    append(hash.primes, primes);
    append(hash.multipliers, multipliers);
  }
  std::vector<int64_t> expected_primes, expected_multipliers;
  flatten(engram_.at("primes"), expected_primes);
  flatten(engram_.at("multipliers"), expected_multipliers);
  EXPECT_EQ(primes, expected_primes);
  EXPECT_EQ(multipliers, expected_multipliers);
}

TEST_F(GoldenEngram, TheFirstPromptLooksUpTheRecordedRows) {
  const auto prompt = integers<int32_t>(golden_.at("cases").as_array()[0].at("prompt_ids"));
  const auto count = std::ssize(prompt);
  const std::vector<ops::SequenceRows> sequence = {{.num_rows = count, .tokens = prompt.data()}};
  const std::vector<int32_t> sequence_of(prompt.size(), 0);
  std::vector<int64_t> positions(prompt.size());
  std::iota(positions.begin(), positions.end(), int64_t{0});
  const int64_t lookups = model_.model.config.engram.rows_per_token();
  const auto layers = std::ssize(hashing_.layers);
  std::vector<int64_t> rows(static_cast<std::size_t>(count * layers * lookups));
  std::vector<int64_t> ids(static_cast<std::size_t>(count * lookups));
  Arena scratch;
  ops::Exec exec{pool_, scratch};
  for (int64_t layer = 0; layer < layers; ++layer) {
    const auto& hash = hashing_.layers[static_cast<std::size_t>(layer)];
    ops::ref_ops().engram_hash(
        exec,
        {.ids = View<int64_t, 2>(ids.data(), count, lookups),
         .token_map = hashing_.token_map,
         .multipliers = hash.multipliers,
         .primes = hash.primes,
         .offsets = hash.offsets,
         .pad = hashing_.pad,
         .rows =
             {.sequences = sequence,
              .sequence_of = View<const int32_t, 1>(sequence_of.data(), count),
              .positions = View<const int64_t, 1>(positions.data(), count),
              .max_length = count}}
    );
    for (int64_t row = 0; row < count; ++row) {
      const auto to = rows.begin() + (row * layers + layer) * lookups;
      std::copy_n(ids.begin() + row * lookups, lookups, to);
    }
  }
  std::vector<int64_t> expected;
  flatten(engram_.at("rows_first_prompt"), expected);
  EXPECT_EQ(rows, expected);
}

}  // namespace
}  // namespace di::golden
