// What the benchmarks of draws have in common: logits like a model's, slots and room for results.
#pragma once

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "ops/cuda/launch.h"
#include "ops/cuda/memory.h"
#include "sampling/cuda/draw.h"

namespace di::sampling::cuda {

inline constexpr int64_t kVocabSize = 129280;

/// An array on the device.
template <class T>
class BenchArray {
 public:
  explicit BenchArray(const std::vector<T>& values) : BenchArray(std::ssize(values)) {
    copy_to(0, values);
  }
  explicit BenchArray(int64_t count)
      : bytes_(ops::cuda::device_memory().allocate(count * sizeof(T), "a benchmark")) {}

  T* data() const { return reinterpret_cast<T*>(bytes_.get()); }
  void copy_to(int64_t first, const std::vector<T>& values) const {
    const auto code =
        cudaMemcpy(data() + first, values.data(), values.size() * sizeof(T), cudaMemcpyDefault);
    ops::cuda::check(code, "upload");
  }

 private:
  std::shared_ptr<std::byte> bytes_;
};

/// Rows with some tens of likely tokens above a normal bulk, as a model's; a few sets of them, so
/// that those of many rows exceed the cache.
class BenchLogits {
 public:
  explicit BenchLogits(int64_t rows) : rows_(rows), logits_(kSets * rows * kVocabSize) {
    constexpr int64_t kDifferent = 32;  // making more takes longer than measuring
    std::mt19937 random(3);
    const int64_t all = kSets * rows;
    for (int64_t row = 0; row < std::min(all, kDifferent); ++row) {
      const std::vector<float> one = make_row(random);
      for (int64_t to = row; to < all; to += kDifferent)
        logits_.copy_to(to * kVocabSize, one);
    }
  }

  View<const float, 2> of_turn(int turn) const {
    const float* first = logits_.data() + turn % kSets * rows_ * kVocabSize;
    return View<const float, 2>(first, rows_, kVocabSize);
  }

 private:
  static constexpr int64_t kSets = 4;

  static std::vector<float> make_row(std::mt19937& random) {
    std::normal_distribution<float> normal;
    std::vector<float> row(kVocabSize);
    for (float& logit : row)
      logit = 2 * normal(random);
    for (int i = 0; i < 40; ++i)
      row[random() % kVocabSize] = 18 - 0.3f * static_cast<float>(i) + normal(random);
    return row;
  }

  int64_t rows_;
  BenchArray<float> logits_;
};

/// Slots of equal requests with seeds of their own.
class BenchSlots {
 public:
  BenchSlots(const SamplingParams& params, int64_t count, cudaStream_t stream) {
    const std::vector<int32_t> prompt = {1, 2, 3, 500, 70000};
    std::vector<SlotParams> slots;
    for (int64_t i = 0; i < count; ++i) {
      Arena staging;
      owners_.push_back(std::make_unique<DeviceSlot>(
          params, 1, 77 + i, prompt, prompt, kVocabSize, SlotArea(), staging, stream
      ));
      slots.push_back(owners_.back()->params());
    }
    slots_ = std::make_unique<BenchArray<SlotParams>>(slots);
  }

  const SlotParams& slot(int64_t i) const { return owners_[static_cast<std::size_t>(i)]->params(); }
  int64_t count() const { return std::ssize(owners_); }
  View<const SlotParams, 1> view() const {
    return View<const SlotParams, 1>(slots_->data(), std::ssize(owners_));
  }

 private:
  std::vector<std::unique_ptr<DeviceSlot>> owners_;
  std::unique_ptr<BenchArray<SlotParams>> slots_;
};

/// One row of each slot.
inline std::vector<DrawRow> bench_draw_rows(const BenchSlots& slots) {
  std::vector<DrawRow> rows;
  for (int64_t i = 0; i < slots.count(); ++i) {
    rows.push_back(
        {.position = i,
         .slot = static_cast<int32_t>(i),
         .is_plain = is_plainly_greedy(slots.slot(i))}
    );
  }
  return rows;
}

/// Room for draws that report up to 20 best tokens.
class BenchResults {
 public:
  explicit BenchResults(int64_t rows) : rows_(rows), words_(rows * 64) {}

  Drawn drawn() const {
    int32_t* words = words_.data();
    auto* floats = reinterpret_cast<float*>(words);
    return {
        .tokens = View<int32_t, 1>(words, rows_),
        .logprobs = View<float, 1>(floats + rows_, rows_),
        .finite = View<uint8_t, 1>(reinterpret_cast<uint8_t*>(words + 2 * rows_), rows_),
        .top_tokens = View<int32_t, 2>(words + 3 * rows_, rows_, 20),
        .top_logprobs = View<float, 2>(floats + 23 * rows_, rows_, 20)};
  }

 private:
  int64_t rows_;
  BenchArray<int32_t> words_;
};

}  // namespace di::sampling::cuda
