// Cases of the number formats, the quantisers and the scalar functions.
#include <fmt/format.h>

#include "ops/canonical.h"
#include "verify/op_case.h"

namespace di::verify {
namespace {

/// function(x) for every element of a tensor.
template <class In, class Function>
auto map(const std::vector<In>& values, const Function& function) {
  std::vector<decltype(function(values[0]))> results;
  for (const In& value : values)
    results.push_back(function(value));
  return results;
}

float decode_nibble(const std::vector<uint8_t>& codes, std::size_t i) {
  return decode_e2m1(nibble(codes.data(), static_cast<int64_t>(i)));
}

/// Q8 in groups of `width` columns: through the table for the width that the model uses.
void check_quant_fp8(OpCase& test, int64_t width) {
  const std::string x_name = fmt::format("x{}", width);
  if (!test.fixture().has(x_name)) return;
  const std::vector<bf16> x = test.fixture().bf16s(x_name);
  const int64_t rows = test.dim(x_name, 0), cols = test.dim(x_name, 1);
  std::vector<uint8_t> codes(x.size());
  std::vector<uint8_t> scales(x.size() / static_cast<std::size_t>(width));
  if (width == ops::kScaleGroup) {
    const auto placed_codes = test.room<uint8_t>(rows, cols);
    const auto placed_scales = test.room<uint8_t>(rows, cols / width);
    test.ops().quantize_fp8(
        test.exec(),
        {.codes = placed_codes, .scales = placed_scales, .x = test.place(x, rows, cols)}
    );
    codes = test.fetch(placed_codes);
    scales = test.fetch(placed_scales);
  } else {
    for (std::size_t group = 0; group < scales.size(); ++group) {
      const std::size_t first = group * static_cast<std::size_t>(width);
      scales[group] = ops::quantize_q8_group(x.data() + first, width, codes.data() + first);
    }
  }
  std::vector<float> values;
  for (std::size_t i = 0; i < codes.size(); ++i) {
    values.push_back(
        decode_e4m3(codes[i]) * decode_e8m0(scales[i / static_cast<std::size_t>(width)])
    );
  }
  test.check(fmt::format("codes{}", width), codes);
  test.check(fmt::format("scales{}", width), scales);
  test.check(fmt::format("dequant{}", width), values);
}

void check_mx32(OpCase& test, const std::vector<bf16>& x, int64_t rows, int64_t cols) {
  const auto placed_codes = test.room<uint8_t>(rows, cols / 2);
  const auto placed_scales = test.room<uint8_t>(rows, cols / 32);
  test.ops().quantize_mxfp4(
      test.exec(), {.codes = placed_codes, .scales = placed_scales, .x = test.place(x, rows, cols)}
  );
  const std::vector<uint8_t> codes = test.fetch(placed_codes), scales = test.fetch(placed_scales);
  std::vector<float> values;
  for (std::size_t i = 0; i < x.size(); ++i)
    values.push_back(decode_nibble(codes, i) * decode_e8m0(scales[i / 32]));
  test.check("mx32_codes", codes);
  test.check("mx32_scales", scales);
  test.check("mx32_dequant", values);
}

void check_nv16(OpCase& test, const std::vector<bf16>& x, int64_t rows, int64_t cols) {
  const int64_t record_bytes = ops::kv_record_bytes(ops::KvFormat::kFp4, cols);
  PagedEntries cache(test, rows, /*per_block=*/8, record_bytes, record_bytes);
  const LoneSequence step(test, rows, /*ratio=*/1, cache.num_blocks());
  test.ops().compressed_store(
      test.exec(),
      {.cache = cache.view(),
       .format = ops::KvFormat::kFp4,
       .kv = test.place(x, rows, cols),
       .entries = step.entries(),
       .rows = step.rows()}
  );
  const ops::PagedView records = cache.fetch(test);
  std::vector<uint8_t> codes, scales;
  for (int64_t row = 0; row < rows; ++row) {
    const auto* record = reinterpret_cast<const uint8_t*>(records.record(step.block_table(), row));
    codes.insert(codes.end(), record, record + cols / 2);
    scales.insert(scales.end(), record + cols / 2, record + record_bytes);
  }
  std::vector<float> values;
  for (std::size_t i = 0; i < x.size(); ++i)
    values.push_back(decode_nibble(codes, i) * decode_e4m3(scales[i / 16]));
  test.check("nv16_codes", codes);
  test.check("nv16_scales", scales);
  test.check("nv16_dequant", values);
}

}  // namespace

void run_rounding_case(OpCase& test) {
  const Fixture& file = test.fixture();
  std::vector<float> e4m3, e8m0, e2m1;
  for (int code = 0; code < 256; ++code) {
    e4m3.push_back(decode_e4m3(static_cast<uint8_t>(code)));
    e8m0.push_back(decode_e8m0(static_cast<uint8_t>(code)));
  }
  for (uint8_t code = 0; code < 16; ++code)
    e2m1.push_back(decode_e2m1(code));
  test.check("e4m3_decode", e4m3);
  test.check("e8m0_decode", e8m0);
  test.check("e2m1_decode", e2m1);
  test.check("e4m3_code", map(file.floats("e4m3_in"), encode_e4m3));
  test.check("e2m1_code", map(file.floats("e2m1_in"), encode_e2m1));
  const std::vector<float> amax = file.floats("amax_in");
  test.check("pow2_scale_448", map(amax, [](float a) { return decode_e8m0(ops::q8_scale(a)); }));
  test.check("pow2_scale_6", map(amax, [](float a) { return decode_e8m0(ops::q4m_scale(a)); }));
  test.check("nv_scale_code", map(amax, ops::q4n_scale));
  test.check("bf16_bits", map(file.floats("bf16_in"), [](float x) {
               return int64_t{static_cast<int16_t>(to_bf16(x).bits)};
             }));
}

void run_quant_fp8_case(OpCase& test) {
  for (const int64_t width : {32, 64, 128})
    check_quant_fp8(test, width);
}

void run_quant_fp4_case(OpCase& test) {
  const std::vector<bf16> x = test.fixture().bf16s("x");
  check_mx32(test, x, test.dim("x", 0), test.dim("x", 1));
  check_nv16(test, x, test.dim("x", 0), test.dim("x", 1));
}

void run_golden_bytes_case(OpCase& test) {
  const Fixture& file = test.fixture();
  const float fp8_scale = decode_e8m0(file.bytes("fp8_scale").at(0));
  const float fp4_scale = decode_e8m0(file.bytes("fp4_scale").at(0));
  const std::vector<uint8_t> fp4 = file.bytes("fp4");
  std::vector<float> fp4_values;
  for (std::size_t i = 0; i < 2 * fp4.size(); ++i)
    fp4_values.push_back(decode_nibble(fp4, i) * fp4_scale);
  test.check("fp4_values", fp4_values);
  test.check("fp8_values", map(file.bytes("fp8"), [&](uint8_t code) {
               return decode_e4m3(code) * fp8_scale;
             }));
}

void run_scalar_case(OpCase& test) {
  const std::vector<float> x = test.fixture().floats("x");
  test.check("sigmoid", map(x, ops::sigmoid_f32));
  test.check("silu", map(x, ops::silu_f32));
  test.check("sqrtsoftplus", map(x, ops::sqrt_softplus_f32));
  test.check("exp", map(x, [](float value) { return ops::exp_f32(std::min(value, 80.0f)); }));
  test.note("gelu belongs to the image encoder, which this build does not have");
}

}  // namespace di::verify
