// The cuda linears against the reference, and against themselves: the bits of a row depend on
// nothing but the row.
#include "ops/cuda/linear.h"

#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "ops/cpu/testing.h"
#include "ops/cuda/testing.h"

namespace di::ops::cuda {
namespace {

using cpu::testing::bytes_of;
using cpu::testing::Q8Rows;
using cpu::testing::random_q8;
using cpu::testing::RawWeight;
using cpu::testing::same_bits;
using testing::DeviceArray;
using testing::Machine;
using testing::relative_error;

/// A matrix packed on the device, in pieces as a loader packs it.
class DeviceWeight {
 public:
  explicit DeviceWeight(const RawWeight& raw)
      : bytes_(packed_bytes(raw.format, raw.rows, raw.cols)),
        weight_{raw.format, raw.rows, raw.cols, bytes_.data(), nullptr} {
    bytes_.poison();
    const int64_t piece = std::max(kPackRows, raw.rows / 3 / kPackRows * kPackRows);
    for (int64_t row = 0; row < raw.rows; row += piece)
      pack(raw.weight(), {row, std::min(raw.rows, row + piece)}, bytes_.data());
  }
  const Weight& weight() const { return weight_; }

 private:
  DeviceArray<std::byte> bytes_;
  Weight weight_;
};

/// Codes of plausible magnitudes: sums neither cancel to nothing nor overflow.
RawWeight plain_weight(std::mt19937& random, WeightFormat format, int64_t rows, int64_t cols) {
  RawWeight w = cpu::testing::random_weight(random, format, rows, cols);
  for (uint8_t& scale : w.scales)
    scale = static_cast<uint8_t>(cpu::testing::uniform(random, 116, 122));
  if (format == WeightFormat::kBf16) {
    std::normal_distribution<float> normal;
    std::vector<bf16> values;
    for (int64_t i = 0; i < rows * cols; ++i)
      values.push_back(to_bf16(normal(random)));
    w.data = bytes_of(values);
  }
  return w;
}

Q8Rows plain_q8(std::mt19937& random, int64_t rows, int64_t cols) {
  Q8Rows x = random_q8(random, rows, cols);
  for (uint8_t& scale : x.scales)
    scale = static_cast<uint8_t>(cpu::testing::uniform(random, 118, 124));
  return x;
}

std::vector<bf16> plain_rows(std::mt19937& random, int64_t count) {
  std::normal_distribution<float> normal;
  std::vector<bf16> x;
  for (int64_t i = 0; i < count; ++i)
    x.push_back(to_bf16(normal(random)));
  return x;
}

class CudaLinearTest : public ::testing::Test {
 protected:
  std::mt19937 random_{11};

  std::vector<bf16> run_q8(const Weight& w, const Q8Rows& x) {
    Machine machine;
    const DeviceArray<uint8_t> codes(x.codes);
    const DeviceArray<uint8_t> scales(x.scales);
    DeviceArray<bf16> y(x.rows * w.rows);
    y.poison();
    const Q8View view{
        View<const uint8_t, 2>(codes.data(), x.rows, x.cols),
        View<const uint8_t, 2>(scales.data(), x.rows, x.cols / kScaleGroup)};
    linear_q8(machine.device(), {View<bf16, 2>(y.data(), x.rows, w.rows), view, w});
    return y.read();
  }

  std::vector<bf16> reference_q8(const RawWeight& w, const Q8Rows& x) {
    Machine machine;
    std::vector<bf16> y(static_cast<std::size_t>(x.rows * w.rows));
    ref_ops().linear_q8(
        machine.host(), {View<bf16, 2>(y.data(), x.rows, w.rows), x.view(), w.weight()}
    );
    return y;
  }

  /// Results in fp32 or, widened, in bf16.
  std::vector<float> run(
      const OpTable* host,
      const Weight& w,
      const std::vector<bf16>& x,
      int64_t groups,
      bool f32,
      float factor = 1
  ) {
    Machine machine;
    const auto rows = std::ssize(x) / (groups * w.cols);
    const DeviceArray<bf16> device_x(x);
    DeviceArray<bf16> y(rows * w.rows);
    DeviceArray<float> y_f32(rows * w.rows);
    std::vector<bf16> host_y(static_cast<std::size_t>(rows * w.rows));
    std::vector<float> host_f32(host_y.size());
    y.poison();
    y_f32.poison();
    Linear op{
        .y = View<bf16, 2>(host != nullptr ? host_y.data() : y.data(), rows, w.rows),
        .y_f32 = {},
        .x = View<const bf16, 2>(
            host != nullptr ? x.data() : device_x.data(), rows, groups * w.cols
        ),
        .w = w,
        .groups = groups,
        .y_factor = factor};
    if (f32) {
      op.y_f32 = View<float, 2>(host != nullptr ? host_f32.data() : y_f32.data(), rows, w.rows);
    }
    if (host != nullptr) {
      host->linear(machine.host(), op);
    } else {
      linear(machine.device(), op);
      host_y = y.read();
      host_f32 = y_f32.read();
    }
    if (!f32) {
      for (std::size_t i = 0; i < host_y.size(); ++i)
        host_f32[i] = to_float(host_y[i]);
    }
    return host_f32;
  }

  void expect_q8_close(WeightFormat format, int64_t rows, int64_t n, int64_t k) {
    const RawWeight raw = plain_weight(random_, format, n, k);
    const Q8Rows x = plain_q8(random_, rows, k);
    const DeviceWeight packed(raw);
    EXPECT_LT(relative_error(run_q8(packed.weight(), x), reference_q8(raw, x)), 2e-3)
        << rows << " rows, " << n << " x " << k << (format == WeightFormat::kFp8 ? " fp8" : " fp4");
  }

  void expect_close(
      WeightFormat format, int64_t rows, int64_t n, int64_t k, int64_t groups, bool f32
  ) {
    const RawWeight raw = plain_weight(random_, format, n, k);
    const std::vector<bf16> x = plain_rows(random_, rows * groups * k);
    const DeviceWeight packed(raw);
    const auto found = run(nullptr, packed.weight(), x, groups, f32);
    const auto expected = run(&ref_ops(), raw.weight(), x, groups, f32);
    EXPECT_LT(relative_error(found, expected), f32 ? 1e-5 : 2e-3)
        << rows << " rows, " << n << " x " << k << " in " << groups << " groups, "
        << (format == WeightFormat::kFp8 ? "fp8" : "bf16");
  }
};

TEST_F(CudaLinearTest, QuantisedLinearsAreCloseToTheReference) {
  DI_NEEDS_GPU();
  for (const WeightFormat format : {WeightFormat::kFp8, WeightFormat::kFp4}) {
    for (const int64_t rows : {1, 5, 8, 9, 16, 23, 33, 64, 65, 130, 300})
      expect_q8_close(format, rows, 192, 256);
    for (const int64_t n : {1, 31, 32, 33, 64, 100, 129, 515})
      expect_q8_close(format, 3, n, 160);
    for (const int64_t k : {32, 64, 96, 128, 512, 1056, 5120})
      expect_q8_close(format, 5, 48, k);
  }
}

TEST_F(CudaLinearTest, PlainLinearsAreCloseToTheReference) {
  DI_NEEDS_GPU();
  for (const WeightFormat format : {WeightFormat::kBf16, WeightFormat::kFp8}) {
    for (const int64_t rows : {1, 8, 13, 30, 64, 100, 300})
      expect_close(format, rows, 96, 256, 1, rows % 2 == 0);
    for (const int64_t n : {1, 15, 33, 200})
      expect_close(format, 2, n, 131, 1, true);
    expect_close(format, 5, 64, 64, 2, false);
    expect_close(format, 5, 60, 64, 3, true);
    expect_close(format, 70, 512, 96, 4, false);
    expect_close(format, 3, 63, 72, 9, false);
    expect_close(format, 4, 40, 5120, 1, true);
  }
}

TEST_F(CudaLinearTest, ExtremeScalesStayCloseToTheReference) {
  DI_NEEDS_GPU();
  for (const WeightFormat format : {WeightFormat::kFp8, WeightFormat::kFp4}) {
    for (const int64_t rows : {3, 70}) {
      const RawWeight raw = cpu::testing::random_weight(random_, format, 96, 512);
      const Q8Rows x = random_q8(random_, rows, 512);
      const DeviceWeight packed(raw);
      EXPECT_LT(relative_error(run_q8(packed.weight(), x), reference_q8(raw, x)), 2e-3);
    }
  }
}

TEST_F(CudaLinearTest, ScalesBeyondTheRangeGiveNothingFinite) {
  DI_NEEDS_GPU();
  RawWeight raw = plain_weight(random_, WeightFormat::kFp8, 64, 64);
  for (std::byte& code : raw.data)
    code = std::byte{0x38};
  raw.scales[0] = 254;  // rows 0 to 31, columns 0 to 31
  const Q8Rows x = plain_q8(random_, 2, 64);
  const auto y = run_q8(DeviceWeight(raw).weight(), x);
  for (int64_t n = 0; n < 64; ++n)
    EXPECT_EQ(std::isfinite(to_float(y[static_cast<std::size_t>(n)])), n >= 32) << n;
}

/// Rows [first, first + count).
Q8Rows some_rows(const Q8Rows& all, int64_t first, int64_t count) {
  const auto part = [&](const std::vector<uint8_t>& from, int64_t width) {
    return std::vector<uint8_t>(
        from.begin() + first * width, from.begin() + (first + count) * width
    );
  };
  return {count, all.cols, part(all.codes, all.cols), part(all.scales, all.cols / kScaleGroup)};
}

TEST_F(CudaLinearTest, BitsOfARowDoNotDependOnTheOthers) {
  DI_NEEDS_GPU();
  struct Shape {
    int64_t n, k;
  };
  // One slice; several slices, fused or not; a tail of columns.
  for (const Shape shape : {Shape{576, 128}, Shape{320, 1280}, Shape{4224, 1056}}) {
    for (const WeightFormat format : {WeightFormat::kFp8, WeightFormat::kFp4}) {
      const DeviceWeight packed(plain_weight(random_, format, shape.n, shape.k));
      const Q8Rows all = plain_q8(random_, 700, shape.k);
      const auto expected = run_q8(packed.weight(), all);
      for (const int64_t rows : {1, 5, 16, 31, 64, 100, 128, 300}) {
        const int64_t first = 700 - rows - 3;
        const auto found = run_q8(packed.weight(), some_rows(all, first, rows));
        EXPECT_EQ(std::memcmp(found.data(), expected.data() + first * shape.n, found.size() * 2), 0)
            << rows << " rows of " << shape.n << " x " << shape.k;
      }
    }
  }
}

TEST_F(CudaLinearTest, BitsDoNotDependOnHowRoundsAreShared) {
  DI_NEEDS_GPU();
  // 133 pairs of row tiles: on 132 multiprocessors the last one is a launch of its own.
  const int64_t n = 17024, k = 1280;
  const DeviceWeight packed(plain_weight(random_, WeightFormat::kFp8, n, k));
  const Q8Rows all = plain_q8(random_, 512, k);
  const auto expected = run_q8(packed.weight(), all);
  const auto found = run_q8(packed.weight(), some_rows(all, 0, 5));
  EXPECT_EQ(std::memcmp(found.data(), expected.data(), found.size() * 2), 0);
}

TEST_F(CudaLinearTest, BitsDoNotDependOnWherePartsMeet) {
  DI_NEEDS_GPU();
  // Twenty slices in four parts: units of slices, of parts, and of all, by the number of rows.
  const int64_t n = 1280, k = 5120;
  const DeviceWeight packed(plain_weight(random_, WeightFormat::kFp8, n, k));
  const Q8Rows all = plain_q8(random_, 1400, k);
  const auto expected = run_q8(packed.weight(), all);
  for (const int64_t rows : {3, 40, 100, 300, 520, 1040}) {
    const auto found = run_q8(packed.weight(), some_rows(all, 0, rows));
    EXPECT_EQ(std::memcmp(found.data(), expected.data(), found.size() * 2), 0) << rows << " rows";
  }
}

TEST_F(CudaLinearTest, BitsOfARowOfGroupsDoNotDependOnTheOthers) {
  DI_NEEDS_GPU();
  const int64_t n = 512, k = 1024, groups = 4;
  const DeviceWeight packed(plain_weight(random_, WeightFormat::kFp8, n, k));
  const auto all = plain_rows(random_, 150 * groups * k);
  const auto expected = run(nullptr, packed.weight(), all, groups, false);
  for (const int64_t rows : {1, 4, 8, 40}) {
    const std::vector<bf16> some(all.end() - rows * groups * k, all.end());
    const auto found = run(nullptr, packed.weight(), some, groups, false);
    EXPECT_EQ(std::memcmp(found.data(), &*(expected.end() - rows * n), found.size() * 4), 0)
        << rows << " rows";
  }
}

TEST_F(CudaLinearTest, BitsOfAPlainRowDoNotDependOnTheOthers) {
  DI_NEEDS_GPU();
  for (const int64_t k : {256, 5120}) {
    const int64_t n = 192;
    const DeviceWeight packed(plain_weight(random_, WeightFormat::kBf16, n, k));
    const auto all = plain_rows(random_, 400 * k);
    const auto expected = run(nullptr, packed.weight(), all, 1, true);
    for (const int64_t rows : {1, 6, 16, 17, 64, 65, 200}) {
      const int64_t first = 400 - rows - 1;
      const std::vector<bf16> some(all.begin() + first * k, all.begin() + (first + rows) * k);
      const auto found = run(nullptr, packed.weight(), some, 1, true);
      EXPECT_EQ(std::memcmp(found.data(), expected.data() + first * n, found.size() * 4), 0)
          << rows << " rows, " << k << " columns";
    }
  }
}

TEST_F(CudaLinearTest, ASetGivesTheBitsOfItsProducts) {
  DI_NEEDS_GPU();
  const int64_t k = 1280;
  const DeviceWeight wide(plain_weight(random_, WeightFormat::kFp8, 2048, k));
  const DeviceWeight small(plain_weight(random_, WeightFormat::kFp8, 100, k));
  const DeviceWeight plain(plain_weight(random_, WeightFormat::kBf16, 48, k));
  for (const int64_t rows : {1, 3, 8, 20}) {
    const Q8Rows q8 = plain_q8(random_, rows, k);
    const std::vector<bf16> x = plain_rows(random_, rows * k);
    const DeviceArray<uint8_t> codes(q8.codes);
    const DeviceArray<uint8_t> scales(q8.scales);
    const DeviceArray<bf16> device_x(x);
    DeviceArray<bf16> y[2] = {DeviceArray<bf16>(rows * 2048), DeviceArray<bf16>(rows * 100)};
    DeviceArray<float> y_f32(rows * 48);
    for (DeviceArray<bf16>& array : y)
      array.poison();
    y_f32.poison();
    const Q8View view{
        View<const uint8_t, 2>(codes.data(), rows, k),
        View<const uint8_t, 2>(scales.data(), rows, k / kScaleGroup)};
    const LinearQ8 set[2] = {
        {View<bf16, 2>(y[0].data(), rows, 2048), view, wide.weight()},
        {View<bf16, 2>(y[1].data(), rows, 100), view, small.weight()}};
    const Linear more[1] = {
        {.y = {},
         .y_f32 = View<float, 2>(y_f32.data(), rows, 48),
         .x = View<const bf16, 2>(device_x.data(), rows, k),
         .w = plain.weight()}};
    Machine machine;
    linear_set(machine.device(), {.q8 = set, .plain = more});
    EXPECT_TRUE(same_bits(y[0].read(), run_q8(wide.weight(), q8))) << rows;
    EXPECT_TRUE(same_bits(y[1].read(), run_q8(small.weight(), q8))) << rows;
    EXPECT_EQ(y_f32.read(), run(nullptr, plain.weight(), x, 1, true)) << rows;
  }
}

TEST_F(CudaLinearTest, TheQ8FormIsThatOfTheResult) {
  DI_NEEDS_GPU();
  struct Shape {
    int64_t n, k, groups;
  };
  Machine machine;
  for (const Shape& shape : {Shape{2048, 2048, 4}, Shape{8192, 512, 8}, Shape{96, 256, 1}}) {
    const DeviceWeight packed(plain_weight(random_, WeightFormat::kFp8, shape.n, shape.k));
    for (const int64_t rows : {1, 3, 8, 9, 40, 64, 70}) {
      std::vector<bf16> x = plain_rows(random_, rows * shape.groups * shape.k);
      if (rows == 8) x[static_cast<std::size_t>(shape.groups * shape.k)] = {0x7fc0};  // row 1
      const DeviceArray<bf16> device_x(x);
      DeviceArray<bf16> y(rows * shape.n);
      DeviceArray<uint8_t> codes(rows * shape.n);
      DeviceArray<uint8_t> scales(rows * shape.n / kScaleGroup);
      y.poison();
      codes.poison(0x55);
      scales.poison(0x55);
      linear(
          machine.device(),
          {.y = View<bf16, 2>(y.data(), rows, shape.n),
           .y_f32 = {},
           .x = View<const bf16, 2>(device_x.data(), rows, shape.groups * shape.k),
           .w = packed.weight(),
           .groups = shape.groups,
           .codes = View<uint8_t, 2>(codes.data(), rows, shape.n),
           .scales = View<uint8_t, 2>(scales.data(), rows, shape.n / kScaleGroup)}
      );
      std::vector<bf16> found = y.read();
      std::vector<uint8_t> expected_codes(found.size());
      std::vector<uint8_t> expected_scales(found.size() / kScaleGroup);
      ref_ops().quantize_fp8(
          machine.host(),
          {.codes = View<uint8_t, 2>(expected_codes.data(), rows, shape.n),
           .scales = View<uint8_t, 2>(expected_scales.data(), rows, shape.n / kScaleGroup),
           .x = View<const bf16, 2>(found.data(), rows, shape.n)}
      );
      EXPECT_EQ(codes.read(), expected_codes) << rows << " rows, " << shape.n << " x " << shape.k;
      EXPECT_EQ(scales.read(), expected_scales) << rows << " rows, " << shape.n << " x " << shape.k;
      if (rows == 8) continue;  // NaN is not equal to itself
      std::vector<float> wide;
      for (const bf16 value : found)
        wide.push_back(to_float(value));
      EXPECT_EQ(wide, run(nullptr, packed.weight(), x, shape.groups, false)) << rows << " rows";
    }
  }
}

TEST_F(CudaLinearTest, NanOfOneRowStaysInIt) {
  DI_NEEDS_GPU();
  const int64_t n = 192, k = 640;
  for (const int64_t rows : {4, 80}) {
    const DeviceWeight packed(plain_weight(random_, WeightFormat::kFp8, n, k));
    Q8Rows x = plain_q8(random_, rows, k);
    const auto clean = run_q8(packed.weight(), x);
    x.codes[static_cast<std::size_t>(2 * k + 77)] = 0x7f;
    const auto found = run_q8(packed.weight(), x);
    for (int64_t i = 0; i < rows * n; ++i) {
      const auto at = static_cast<std::size_t>(i);
      if (i / n == 2) {
        EXPECT_TRUE(std::isnan(to_float(found[at])));
      } else {
        EXPECT_EQ(found[at].bits, clean[at].bits);
      }
    }
  }
}

TEST_F(CudaLinearTest, FactorIsAppliedToTheRoundedResult) {
  DI_NEEDS_GPU();
  const DeviceWeight packed(plain_weight(random_, WeightFormat::kBf16, 32, 256));
  const auto x = plain_rows(random_, 3 * 256);
  const auto plain = run(nullptr, packed.weight(), x, 1, false);
  const auto scaled = run(nullptr, packed.weight(), x, 1, false, 0.011f);
  for (std::size_t i = 0; i < plain.size(); ++i)
    EXPECT_EQ(scaled[i], to_float(to_bf16(plain[i] * 0.011f)));
}

}  // namespace
}  // namespace di::ops::cuda
