// Row kernels against the reference: equal bits, or the tolerance that is named.
#include <cstring>
#include <random>

#include "ops/cuda/engram.h"
#include "ops/cuda/mhc.h"
#include "ops/cuda/norm.h"
#include "ops/cuda/row_moves.h"
#include "ops/cuda/testing.h"
#include "ops/cuda/window_keys.h"
#include "ops/ref/ref.h"

namespace di::ops::cuda {
namespace {

using testing::DeviceArray;
using testing::Machine;

/// Numbers of many sizes, with zeros of both signs and stretches of tiny ones among them.
class RandomRows {
 public:
  explicit RandomRows(unsigned seed) : random_(seed) {}

  std::vector<bf16> bf16s(int64_t count) {
    std::vector<bf16> values(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < values.size(); ++i) {
      const int exponent = static_cast<int>(random_() % 12) - (i / 97 % 5 == 4 ? 30 : 8);
      values[i] = to_bf16(random_() % 23 == 0 ? -0.0f : std::ldexp(normal_(random_), exponent));
    }
    return values;
  }
  /// Like the streams of a model: about one size.
  std::vector<bf16> plain_bf16s(int64_t count) {
    std::vector<bf16> values(static_cast<std::size_t>(count));
    for (bf16& value : values)
      value = to_bf16(normal_(random_));
    return values;
  }
  std::vector<float> floats(int64_t count, float size = 1) {
    std::vector<float> values(static_cast<std::size_t>(count));
    for (float& value : values)
      value = normal_(random_) * size;
    return values;
  }
  std::vector<uint8_t> bytes(int64_t count, int low, int high) {
    std::vector<uint8_t> values(static_cast<std::size_t>(count));
    for (uint8_t& value : values)
      value = static_cast<uint8_t>(
          low + static_cast<int>(random_() % static_cast<unsigned>(high - low + 1))
      );
    return values;
  }
  int64_t below(int64_t bound) {
    return static_cast<int64_t>(random_() % static_cast<uint64_t>(bound));
  }

 private:
  std::mt19937_64 random_;
  std::normal_distribution<float> normal_;
};

template <class T>
std::vector<T> blank(int64_t count) {
  return std::vector<T>(static_cast<std::size_t>(count), T{});
}

template <class T>
int64_t differences(const std::vector<T>& a, const std::vector<T>& b) {
  int64_t count = a.size() == b.size() ? 0 : -1;
  for (std::size_t i = 0; i < b.size() && count >= 0; ++i)
    count += std::memcmp(&a[i], &b[i], sizeof(T)) != 0 ? 1 : 0;
  return count;
}

template <class T>
View<T, 2> view(const DeviceArray<T>& array, int64_t rows) {
  return View<T, 2>(array.data(), rows, array.size() / rows);
}
template <class T>
View<T, 2> view(std::vector<T>& array, int64_t rows) {
  return View<T, 2>(array.data(), rows, std::ssize(array) / rows);
}
template <class T>
View<const T, 2> view(const std::vector<T>& array, int64_t rows) {
  return View<const T, 2>(array.data(), rows, std::ssize(array) / rows);
}

/// Rows and width.
class RowsOnCuda : public ::testing::TestWithParam<std::pair<int64_t, int64_t>> {
 protected:
  int64_t rows() const { return GetParam().first; }
  int64_t width() const { return GetParam().second; }
};

TEST_P(RowsOnCuda, NormaliseLikeTheReference) {
  DI_NEEDS_GPU();
  RandomRows random(1);
  const auto x = random.bf16s(rows() * width());
  const auto weight = random.bf16s(width());
  auto expected = blank<bf16>(rows() * width());
  auto codes = blank<uint8_t>(rows() * width());
  auto scales = blank<uint8_t>(rows() * width() / 32);
  ref::rms_norm(
      {.y = view(expected, rows()),
       .x = view(x, rows()),
       .weight = View<const bf16, 1>(weight.data(), width()),
       .eps = 1e-20f,
       .codes = view(codes, rows()),
       .scales = view(scales, rows())},
      {0, rows()}
  );
  Machine machine;
  const DeviceArray<bf16> w(weight);
  const DeviceArray<uint8_t> device_codes(std::ssize(codes));
  const DeviceArray<uint8_t> device_scales(std::ssize(scales));
  for (const bool wants_q8 : {false, true}) {
    const DeviceArray<bf16> y(x);
    RmsNorm op{
        .y = view(y, rows()),
        .x = view(y, rows()),
        .weight = View<const bf16, 1>(w.data(), width()),
        .eps = 1e-20f};
    if (wants_q8) op.codes = view(device_codes, rows());
    if (wants_q8) op.scales = view(device_scales, rows());
    rms_norm(machine.device(), op);
    EXPECT_EQ(differences(y.read(), expected), 0);
  }
  EXPECT_EQ(differences(device_codes.read(), codes), 0);
  EXPECT_EQ(differences(device_scales.read(), scales), 0);
}

TEST(WindowKeysOnCuda, AreTheReferencesRecords) {
  DI_NEEDS_GPU();
  constexpr int64_t kRows = 9;
  for (const auto& [dim, pairs] : {std::pair<int64_t, int64_t>{64, 8}, {96, 4}, {512, 32}}) {
    RandomRows random(3);
    auto kv = random.bf16s(kRows * dim);
    const auto norm = random.bf16s(dim);
    const std::vector<int64_t> positions = {0, 1, 2, 3, 500, 70'000, 70'001, 9, 1'000'000};
    std::vector<float> frequencies;
    for (int64_t i = 0; i < pairs; ++i)
      frequencies.push_back(std::pow(10'000.0f, -static_cast<float>(i) / static_cast<float>(pairs))
      );
    const int64_t bytes = kv_record_bytes(KvFormat::kFp8, dim);
    const DeviceArray<bf16> device_kv(kv), device_norm(norm);
    const DeviceArray<int64_t> device_positions(positions);
    const DeviceArray<float> device_frequencies(frequencies);
    const DeviceArray<uint8_t> records(kRows * bytes);
    Machine machine;
    window_keys(
        machine.device(),
        {.records = view(records, kRows),
         .kv = view(device_kv, kRows),
         .norm = View<const bf16, 1>(device_norm.data(), dim),
         .positions = View<const int64_t, 1>(device_positions.data(), kRows),
         .frequencies = View<const float, 1>(device_frequencies.data(), pairs),
         .eps = 1e-20f}
    );
    auto expected = blank<uint8_t>(kRows * bytes);
    ref::window_keys(
        {.records = view(expected, kRows),
         .kv = view(kv, kRows),
         .norm = View<const bf16, 1>(norm.data(), dim),
         .positions = View<const int64_t, 1>(positions.data(), kRows),
         .frequencies = View<const float, 1>(frequencies.data(), pairs),
         .eps = 1e-20f},
        {0, kRows}
    );
    EXPECT_EQ(differences(records.read(), expected), 0) << dim;
  }
}

TEST_P(RowsOnCuda, QuantiseLikeTheReference) {
  DI_NEEDS_GPU();
  RandomRows random(2);
  const auto x = random.bf16s(rows() * width());
  auto codes = blank<uint8_t>(rows() * width());
  auto scales = blank<uint8_t>(rows() * width() / 32);
  ref::quantize_fp8({view(codes, rows()), view(scales, rows()), view(x, rows())}, {0, rows()});
  Machine machine;
  const DeviceArray<bf16> device_x(x);
  const DeviceArray<uint8_t> device_codes(std::ssize(codes));
  const DeviceArray<uint8_t> device_scales(std::ssize(scales));
  quantize_fp8(
      machine.device(),
      {view(device_codes, rows()), view(device_scales, rows()), view(device_x, rows())}
  );
  EXPECT_EQ(differences(device_codes.read(), codes), 0);
  EXPECT_EQ(differences(device_scales.read(), scales), 0);
}

TEST_P(RowsOnCuda, CollapseAndExpandLikeTheReference) {
  DI_NEEDS_GPU();
  for (const bool plain : {false, true}) {
    RandomRows random(3);
    const auto h =
        plain ? random.plain_bf16s(rows() * 4 * width()) : random.bf16s(rows() * 4 * width());
    const auto y = random.bf16s(rows() * width());
    const auto a = random.floats(rows() * 4);
    const auto comb = random.floats(rows() * 16);
    const View<const bf16, 3> host_h(h.data(), rows(), 4, width());
    auto x = blank<bf16>(rows() * width());
    auto out = blank<bf16>(rows() * 4 * width());
    ref::mhc_collapse({view(x, rows()), host_h, view(a, rows())}, {0, rows()});
    ref::mhc_expand(
        {.h_out = View<bf16, 3>(out.data(), rows(), 4, width()),
         .y = view(y, rows()),
         .h = host_h,
         .post = view(a, rows()),
         .comb = View<const float, 3>(comb.data(), rows(), 4, 4)},
        {0, rows()}
    );
    Machine machine;
    const DeviceArray<bf16> device_h(h);
    const DeviceArray<bf16> device_y(y);
    const DeviceArray<float> device_a(a);
    const DeviceArray<float> device_comb(comb);
    const DeviceArray<bf16> device_x(rows() * width());
    const DeviceArray<bf16> device_out(rows() * 4 * width());
    const View<const bf16, 3> h_view(device_h.data(), rows(), 4, width());
    mhc_collapse(machine.device(), {view(device_x, rows()), h_view, view(device_a, rows())});
    mhc_expand(
        machine.device(),
        {.h_out = View<bf16, 3>(device_out.data(), rows(), 4, width()),
         .y = view(device_y, rows()),
         .h = h_view,
         .post = view(device_a, rows()),
         .comb = View<const float, 3>(device_comb.data(), rows(), 4, 4)}
    );
    EXPECT_EQ(differences(device_x.read(), x), 0);
    EXPECT_EQ(differences(device_out.read(), out), 0);
  }
}

TEST_P(RowsOnCuda, GateEngramLikeTheReference) {
  DI_NEEDS_GPU();
  RandomRows random(4);
  const auto h = random.bf16s(rows() * 4 * width());
  const auto kv = random.bf16s(rows() * 5 * width());
  const auto q = random.bf16s(4 * width());
  const auto k = random.bf16s(4 * width());
  auto is_image = blank<uint8_t>(rows());
  is_image.back() = 1;
  auto expected = h;
  auto expected_gate = blank<float>(rows() * 4);
  ref::engram_gate(
      {.h = View<bf16, 3>(expected.data(), rows(), 4, width()),
       .kv = view(kv, rows()),
       .q_weight = view(q, 4),
       .k_weight = view(k, 4),
       .is_image = View<const uint8_t, 1>(is_image.data(), rows()),
       .gate = view(expected_gate, rows())},
      {0, rows()}
  );
  Machine machine;
  const DeviceArray<bf16> device_h(h);
  const DeviceArray<bf16> device_kv(kv);
  const DeviceArray<bf16> device_q(q);
  const DeviceArray<bf16> device_k(k);
  const DeviceArray<uint8_t> device_image(is_image);
  const DeviceArray<float> gate(rows() * 4);
  engram_gate(
      machine.device(),
      {.h = View<bf16, 3>(device_h.data(), rows(), 4, width()),
       .kv = view(device_kv, rows()),
       .q_weight = view(device_q, 4),
       .k_weight = view(device_k, 4),
       .is_image = View<const uint8_t, 1>(device_image.data(), rows()),
       .gate = view(gate, rows())}
  );
  EXPECT_EQ(differences(gate.read(), expected_gate), 0);
  EXPECT_EQ(differences(device_h.read(), expected), 0);
}

INSTANTIATE_TEST_SUITE_P(
    Shapes,
    RowsOnCuda,
    ::testing::Values(
        std::pair<int64_t, int64_t>{1, 5120},
        std::pair<int64_t, int64_t>{37, 5120},
        std::pair<int64_t, int64_t>{33, 1280},
        std::pair<int64_t, int64_t>{7, 512},
        std::pair<int64_t, int64_t>{9, 128},
        std::pair<int64_t, int64_t>{3, 96}
    )
);

TEST(RopeOnCuda, RotatesLikeTheReferenceBothWays) {
  DI_NEEDS_GPU();
  for (const int64_t pairs : {32, 16, 5}) {
    for (const int64_t heads : {1, 3, 64}) {
      constexpr int64_t kRows = 5;
      const int64_t dim = 2 * pairs + 6;
      RandomRows random(6);
      const auto x = random.bf16s(kRows * heads * dim);
      const std::vector<int64_t> positions = {0, 1, 127, 65537, 1048575};
      std::vector<float> frequencies;
      for (int64_t i = 0; i < pairs; ++i) {
        frequencies.push_back(std::pow(10000.0f, -static_cast<float>(i) / static_cast<float>(pairs))
        );
      }
      Machine machine;
      const DeviceArray<int64_t> device_positions(positions);
      const DeviceArray<float> device_frequencies(frequencies);
      for (const bool inverse : {false, true}) {
        auto expected = x;
        ref::rope(
            {.x = View<bf16, 3>(expected.data(), kRows, heads, dim),
             .positions = View<const int64_t, 1>(positions.data(), kRows),
             .frequencies = View<const float, 1>(frequencies.data(), pairs),
             .inverse = inverse},
            {0, kRows}
        );
        const DeviceArray<bf16> y(x);
        rope(
            machine.device(),
            {.x = View<bf16, 3>(y.data(), kRows, heads, dim),
             .positions = View<const int64_t, 1>(device_positions.data(), kRows),
             .frequencies = View<const float, 1>(device_frequencies.data(), pairs),
             .inverse = inverse}
        );
        EXPECT_EQ(differences(y.read(), expected), 0) << heads << " heads";
      }
    }
  }
}

TEST(EngramOnCuda, LooksUpLikeTheReferenceWhereverTheTableLies) {
  DI_NEEDS_GPU();
  for (const int64_t dim : {256, 32}) {
    constexpr int64_t kTableRows = 16;
    RandomRows random(7);
    auto codes = random.bytes(kTableRows * dim, 0, 0x7e);
    const auto scales = random.bytes(kTableRows * dim / 32, 0, 250);
    const std::vector<int64_t> ids = {3, 15, 0, 7, 7, 9};
    auto expected = blank<bf16>(6 * dim);
    ref::engram_lookup(
        {.y = view(expected, 2),
         .ids = view(ids, 2),
         .table = {codes.data(), scales.data(), kTableRows, dim}},
        {0, 2}
    );
    Machine machine;
    const DeviceArray<int64_t> device_ids(ids);
    const DeviceArray<uint8_t> device_scales(scales);
    for (const int shift : {0, 3}) {
      std::vector<uint8_t> shifted(static_cast<std::size_t>(shift));
      shifted.insert(shifted.end(), codes.begin(), codes.end());
      const DeviceArray<uint8_t> on_device(shifted);
      const auto pinned = pinned_memory().allocate(std::ssize(shifted), "a test");
      std::memcpy(pinned.get(), shifted.data(), shifted.size());
      for (const uint8_t* table :
           {static_cast<const uint8_t*>(on_device.data()),
            reinterpret_cast<const uint8_t*>(pinned.get())}) {
        const DeviceArray<bf16> y(6 * dim);
        engram_lookup(
            machine.device(),
            {.y = view(y, 2),
             .ids = view(device_ids, 2),
             .table = {table + shift, device_scales.data(), kTableRows, dim}}
        );
        EXPECT_EQ(differences(y.read(), expected), 0);
      }
    }
  }
}

/// Sequences with their tokens on the device and on the host.
struct Batch {
  static constexpr int64_t kVocab = 50;
  std::vector<std::vector<int32_t>> tokens = {{4, 9, 1, 33, 7, 7, 2, 48}, {5, 6, 9}};
  std::vector<uint8_t> images = {0, 0, 1, 0, 0, 0, 0, 0};
  std::vector<int32_t> sequence_of = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0};  // the last one is padding
  std::vector<int64_t> positions = {0, 1, 2, 3, 4, 5, 6, 7, 1, 2, 3};
  DeviceArray<int32_t> first{tokens[0]};
  DeviceArray<int32_t> second{tokens[1]};
  DeviceArray<uint8_t> device_images{images};
  DeviceArray<SequenceRows> sequences{std::vector<SequenceRows>{
      {.first_row = 0, .num_rows = 8, .tokens = first.data(), .is_image = device_images.data()},
      {.first_row = 8, .num_rows = 2, .start = 1, .tokens = second.data()}}};
  DeviceArray<int32_t> device_sequence_of{sequence_of};
  DeviceArray<int64_t> device_positions{positions};

  int64_t count() const { return std::ssize(positions); }
  Rows rows() const {
    return {
        .sequences = {sequences.data(), 2},
        .sequence_of = View<const int32_t, 1>(device_sequence_of.data(), count()),
        .positions = View<const int64_t, 1>(device_positions.data(), count()),
        .max_length = 8};
  }
  int32_t token(int64_t row, int64_t back) const {
    const auto r = static_cast<std::size_t>(row);
    return tokens[static_cast<std::size_t>(sequence_of[r])]
                 [static_cast<std::size_t>(positions[r] - back)];
  }
  bool is_image(int64_t row, int64_t back) const {
    const auto r = static_cast<std::size_t>(row);
    return sequence_of[r] == 0 && images[static_cast<std::size_t>(positions[r] - back)] != 0;
  }
};

TEST(EngramOnCuda, HashesTheTokensBack) {
  DI_NEEDS_GPU();
  const Batch batch;
  constexpr int64_t kPad = 3;
  const std::vector<int64_t> multipliers = {
      76632096046245, 4839876093313, 35959672319349, 73987337458391};
  const std::vector<int64_t> primes = {16000057, 16000079, 16000081, 16000097, 16000121, 16000129};
  const std::vector<int64_t> offsets = {0, 10, 20, 30, 40, 50};
  std::vector<int32_t> map;
  for (int32_t i = 0; i < Batch::kVocab; ++i)
    map.push_back(i * 7 % 41);
  std::vector<int64_t> expected;
  for (int64_t row = 0; row < batch.count(); ++row) {
    bool blocked = false;
    int64_t mixed = 0;
    for (int64_t back = 0; back < 4; ++back) {
      const bool before = back > batch.positions[static_cast<std::size_t>(row)];
      blocked = blocked || before || batch.is_image(row, back);
      const int64_t id = blocked ? kPad : map[static_cast<std::size_t>(batch.token(row, back))];
      mixed ^= id * multipliers[static_cast<std::size_t>(back)];
      for (int64_t head = 0; head < 2 && back > 0; ++head) {
        const auto n = static_cast<std::size_t>((back - 1) * 2 + head);
        expected.push_back(mixed % primes[n] + offsets[n]);
      }
    }
  }
  Machine machine;
  const DeviceArray<int32_t> device_map(map);
  const DeviceArray<int64_t> device_multipliers(multipliers);
  const DeviceArray<int64_t> device_primes(primes);
  const DeviceArray<int64_t> device_offsets(offsets);
  const DeviceArray<int64_t> ids(batch.count() * 6);
  engram_hash(
      machine.device(),
      {.ids = view(ids, batch.count()),
       .token_map = View<const int32_t, 1>(device_map.data(), Batch::kVocab),
       .multipliers = View<const int64_t, 1>(device_multipliers.data(), 4),
       .primes = View<const int64_t, 1>(device_primes.data(), 6),
       .offsets = View<const int64_t, 1>(device_offsets.data(), 6),
       .pad = kPad,
       .rows = batch.rows()}
  );
  EXPECT_EQ(ids.read(), expected);
}

TEST(RowMovesOnCuda, EmbedsTokensAndWhatIsGiven) {
  DI_NEEDS_GPU();
  constexpr int64_t kHidden = 136;
  const Batch batch;
  RandomRows random(8);
  const auto table = random.bf16s(Batch::kVocab * kHidden);
  const auto own = random.bf16s(kHidden);
  Machine machine;
  const DeviceArray<bf16> device_table(table);
  const DeviceArray<bf16> device_own(own);
  std::vector<const bf16*> given(static_cast<std::size_t>(batch.count()));
  given[2] = device_own.data();
  const DeviceArray<const bf16*> device_given(given);
  for (const bool with_given : {false, true}) {
    const DeviceArray<bf16> h(batch.count() * 4 * kHidden);
    const DeviceArray<float> a(batch.count() * 4);
    embed(
        machine.device(),
        {.h = View<bf16, 3>(h.data(), batch.count(), 4, kHidden),
         .a = view(a, batch.count()),
         .table = View<const bf16, 2>(device_table.data(), Batch::kVocab, kHidden),
         .given = View<const bf16* const, 1>(device_given.data(), with_given ? batch.count() : 0),
         .rows = batch.rows()}
    );
    std::vector<bf16> expected;
    std::vector<float> expected_a;
    for (int64_t row = 0; row < batch.count(); ++row) {
      const bool is_own = with_given && row == 2;
      const bf16* from = is_own ? own.data() : table.data() + batch.token(row, 0) * kHidden;
      for (int c = 0; c < 4; ++c) {
        expected.insert(expected.end(), from, from + kHidden);
        expected_a.push_back(c == 0 ? 1.0f : 0.0f);
      }
    }
    EXPECT_EQ(differences(h.read(), expected), 0);
    EXPECT_EQ(a.read(), expected_a);
  }
}

TEST(RowMovesOnCuda, CopiesRowsOfAnySize) {
  DI_NEEDS_GPU();
  RandomRows random(9);
  const auto from = random.bytes(4096, 0, 255);
  const std::vector<int64_t> sources = {4, 0, 0, 3};
  Machine machine;
  const DeviceArray<uint8_t> device_from(from);
  const DeviceArray<int64_t> device_sources(sources);
  for (const int64_t bytes : {16, 52, 80}) {
    for (const bool with_sources : {false, true}) {
      const int64_t from_stride = bytes + 16;
      const int64_t to_stride = bytes + 32;
      DeviceArray<uint8_t> to(4 * to_stride);
      to.poison(7);
      copy_rows(
          machine.device(),
          {.to = reinterpret_cast<std::byte*>(to.data()),
           .to_stride = to_stride,
           .from = reinterpret_cast<const std::byte*>(device_from.data()),
           .from_stride = from_stride,
           .row_bytes = bytes,
           .num_rows = 4,
           .sources = View<const int64_t, 1>(device_sources.data(), with_sources ? 4 : 0)}
      );
      std::vector<uint8_t> expected(static_cast<std::size_t>(4 * to_stride), 7);
      for (int64_t row = 0; row < 4; ++row) {
        const int64_t source = with_sources ? sources[static_cast<std::size_t>(row)] : row;
        std::memcpy(
            expected.data() + row * to_stride,
            from.data() + source * from_stride,
            static_cast<std::size_t>(bytes)
        );
      }
      EXPECT_EQ(to.read(), expected) << bytes;
    }
  }
}

TEST(RowMovesOnCuda, FindsTheSequenceOfANumberThatIsNone) {
  DI_NEEDS_GPU();
  constexpr int64_t kHidden = 264;
  const Batch batch;
  RandomRows random(10);
  const auto clean = random.bf16s(batch.count() * 4 * kHidden);
  Machine machine;
  for (const int code : {0x7f80, 0xff80, 0x7fc0, 0xff81, 0x7f7f}) {
    const auto odd = static_cast<uint16_t>(code);
    auto h = clean;
    h[static_cast<std::size_t>(9 * 4 * kHidden + 777)] = {odd};  // a row of the second sequence
    const DeviceArray<bf16> device_h(h);
    const DeviceArray<uint8_t> finite(std::vector<uint8_t>{1, 1});
    rows_finite(
        machine.device(),
        {.finite = View<uint8_t, 1>(finite.data(), 2),
         .h = View<const bf16, 3>(device_h.data(), batch.count(), 4, kHidden),
         .rows = batch.rows()}
    );
    const bool is_finite = odd == 0x7f7f;
    EXPECT_EQ(finite.read(), (std::vector<uint8_t>{1, is_finite ? uint8_t{1} : uint8_t{0}}));
  }
}

}  // namespace
}  // namespace di::ops::cuda
