// Many short texts whose drafts the device draws and judges follow the target's law.
#include <cmath>
#include <map>

#include "sampling/cuda/drafts.h"
#include "sampling/cuda/verify.h"
#include "sampling/cuda/verify_testing.h"

namespace di::sampling::cuda {
namespace {

using ops::cuda::testing::copy_now;
using ops::cuda::testing::DeviceArray;
using Text = std::vector<int32_t>;

constexpr int32_t kVocab = 5;
constexpr int64_t kDrafts = 2;
constexpr int64_t kTexts = 4000;  // at once, of a slot each
constexpr int kRounds = 25;

/// A row for each text, made up once.
class Rows {
 public:
  explicit Rows(unsigned seed) : random_(seed) {}

  const std::vector<float>& behind(const Text& text) {
    std::vector<float>& row = rows_[text];
    std::normal_distribution<float> normal(0, 1.2F);
    while (row.size() < kVocab)
      row.push_back(normal(random_));
    return row;
  }

  double probability(const Text& text, int32_t token) {
    double sum = 0;
    for (const float logit : behind(text))
      sum += std::exp(static_cast<double>(logit));
    return std::exp(static_cast<double>(behind(text)[static_cast<std::size_t>(token)])) / sum;
  }

 private:
  std::mt19937 random_;
  std::map<Text, std::vector<float>> rows_;
};

/// Texts of one slot each, which have no parameters but seeds of their own.
class Texts {
 public:
  explicit Texts(cudaStream_t stream) : stream_(stream) {
    std::vector<SlotParams> slots;
    Arena staging;
    for (int64_t i = 0; i < kTexts; ++i) {
      owners_.push_back(std::make_unique<DeviceSlot>(
          SamplingParams{.ignore_eos = true},
          0,
          1000 + i,
          Text{},
          Text{},
          kVocab,
          SlotArea(),
          staging,
          stream
      ));
      slots.push_back(owners_.back()->params());
    }
    copy_now(slots_.data(), slots.data(), slots.size() * sizeof(SlotParams));
  }

  /// One block of each: the tokens that it tells.
  std::vector<Text> next(Rows& target, Rows& drafter, int64_t position) {
    const std::vector<Text> drafts = draft(drafter, position);
    std::vector<float> logits;
    std::vector<int32_t> flat;
    std::vector<VerifyBlock> blocks;
    for (const Text& own : drafts) {
      for (std::size_t i = 0; i <= kDrafts; ++i) {
        const auto& row = target.behind(Text(own.begin(), own.begin() + static_cast<int>(i)));
        logits.insert(logits.end(), row.begin(), row.end());
      }
      const auto s = std::ssize(blocks);
      blocks.push_back(
          {.position = position,
           .drafts = block_drafts_.data() + s * kDrafts,
           .records = records_.data() + s * kDrafts,
           .first_row = static_cast<int32_t>(s * (kDrafts + 1)),
           .num_drafts = kDrafts,
           .slot = static_cast<int32_t>(s)}
      );
      flat.insert(flat.end(), own.begin(), own.end());
    }
    copy_now(block_drafts_.data(), flat.data(), flat.size() * sizeof(int32_t));
    const DeviceArray<float> device_logits(logits);
    const DeviceArray<VerifyBlock> device_blocks(blocks);
    const DeviceArray<int32_t> num_drawn(kTexts);
    const testing::Results results{.rows = kTexts * (kDrafts + 1), .most = 0};
    verify(
        stream_,
        {.logits = View<const float, 2>(device_logits.data(), results.rows, kVocab),
         .blocks = View<const VerifyBlock, 1>(device_blocks.data(), kTexts),
         .most_drafts = kDrafts,
         .slots = slots(),
         .drawn = results.view(),
         .num_drawn = View<int32_t, 1>(num_drawn.data(), kTexts)}
    );
    const std::vector<int32_t> counts = num_drawn.read();
    const std::vector<int32_t> tokens = results.tokens.read();
    std::vector<Text> texts;
    for (std::size_t s = 0; s < counts.size(); ++s) {
      const auto first = tokens.begin() + static_cast<int64_t>(s) * (kDrafts + 1);
      texts.emplace_back(first, first + counts[s]);
    }
    return texts;
  }

 private:
  View<const SlotParams, 1> slots() const {
    return View<const SlotParams, 1>(slots_.data(), kTexts);
  }

  std::vector<Text> draft(Rows& drafter, int64_t position) {
    std::vector<Text> drafts(kTexts);
    std::vector<DraftRow> rows;
    for (int64_t s = 0; s < kTexts; ++s) {
      rows.push_back(
          {.position = position,
           .slot = static_cast<int32_t>(s),
           .records = records_.data() + s * kDrafts}
      );
    }
    const DeviceArray<DraftRow> device_rows(rows);
    for (int64_t index = 0; index < kDrafts; ++index) {
      std::vector<float> logits;
      for (const Text& own : drafts) {
        const std::vector<float>& row = drafter.behind(own);
        logits.insert(logits.end(), row.begin(), row.end());
      }
      const DeviceArray<float> device_logits(logits);
      choose_drafts(
          stream_,
          {.logits = View<const float, 2>(device_logits.data(), kTexts, kVocab),
           .rows = View<const DraftRow, 1>(device_rows.data(), kTexts),
           .slots = slots(),
           .drafts = View<int32_t, 2>(drafts_.data(), index + 1, kTexts)}
      );
      const std::vector<int32_t> chosen = drafts_.read();
      for (std::size_t s = 0; s < drafts.size(); ++s)
        drafts[s].push_back(chosen[static_cast<std::size_t>(index * kTexts) + s]);
    }
    return drafts;
  }

  cudaStream_t stream_;
  std::vector<std::unique_ptr<DeviceSlot>> owners_;
  DeviceArray<SlotParams> slots_{kTexts};
  DeviceArray<DraftRecord> records_{kTexts * kDrafts};
  DeviceArray<int32_t> drafts_{kTexts * kDrafts};
  DeviceArray<int32_t> block_drafts_{kTexts * kDrafts};
};

/// A text that stopped early goes on by the target's own law.
void complete(Text& text, Rows& target, std::mt19937& random) {
  while (std::ssize(text) <= kDrafts) {
    double share = std::uniform_real_distribution<double>(0, 1)(random);
    int32_t token = 0;
    for (; token + 1 < kVocab; ++token) {
      share -= target.probability(text, token);
      if (share < 0) break;
    }
    text.push_back(token);
  }
}

/// How far texts lie from their law: about 124 ± 16 if they follow it.
double chi_square(const std::map<Text, double>& counts, Rows& target) {
  double sum = 0;
  for (int32_t a = 0; a < kVocab; ++a) {
    for (int32_t b = 0; b < kVocab; ++b) {
      for (int32_t c = 0; c < kVocab; ++c) {
        const double expected = kTexts * kRounds * target.probability({}, a) *
                                target.probability({a}, b) * target.probability({a, b}, c);
        const auto found = counts.find({a, b, c});
        const double off = (found == counts.end() ? 0 : found->second) - expected;
        sum += off * off / expected;
      }
    }
  }
  return sum;
}

TEST(BlocksOnCuda, KeepTheLawOfTexts) {
  DI_NEEDS_GPU();
  ops::cuda::testing::Machine machine;
  Texts texts(machine.stream());
  Rows target(1), drafter(2);
  std::mt19937 random(3);
  std::map<Text, double> counts;
  int64_t accepted = 0;
  for (int round = 0; round < kRounds; ++round) {
    for (Text& text : texts.next(target, drafter, 10 * round)) {
      accepted += std::ssize(text) - 1;
      complete(text, target, random);
      ++counts[text];
    }
  }
  EXPECT_GT(accepted, kTexts * kRounds / 2) << "too few to tell";
  EXPECT_LT(chi_square(counts, target), 200);
}

}  // namespace
}  // namespace di::sampling::cuda
