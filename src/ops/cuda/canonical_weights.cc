#include "ops/cuda/canonical_weights.h"

#include "base/check.h"
#include "base/math.h"
#include "ops/cuda/staging.h"

namespace di::ops::cuda::canonical {
namespace {

/// Of the scales behind the codes.
int64_t scales_at(WeightFormat format, int64_t rows, int64_t cols) {
  return align_up(data_bytes(format, rows, cols), 16);
}

bool has_scales(WeightFormat format) {
  return format == WeightFormat::kFp8 || format == WeightFormat::kFp4;
}

}  // namespace

int64_t packed_bytes(WeightFormat format, int64_t rows, int64_t cols) {
  if (!has_scales(format)) return 0;
  return scales_at(format, rows, cols) + scale_bytes(format, rows, cols);
}

void pack(const Weight& raw, RowRange rows, std::byte* packed) {
  DI_CHECK(has_scales(raw.format), "matrices that have a packed form");
  const StagerLease stager;
  const int64_t codes = data_bytes(raw.format, rows.begin, raw.cols);
  const int64_t scales = scale_bytes(raw.format, rows.begin, raw.cols);
  stager->send(
      packed + codes, raw.data + codes, data_bytes(raw.format, rows.end - rows.begin, raw.cols)
  );
  stager->send(
      packed + scales_at(raw.format, raw.rows, raw.cols) + scales,
      raw.scales + scales,
      scale_bytes(raw.format, rows.end - rows.begin, raw.cols)
  );
  stager->finish();
}

const uint8_t* scales_of(const Weight& packed) {
  if (!has_scales(packed.format)) return nullptr;
  return reinterpret_cast<const uint8_t*>(packed.data) +
         scales_at(packed.format, packed.rows, packed.cols);
}

}  // namespace di::ops::cuda::canonical
