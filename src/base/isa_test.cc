#include "base/isa.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace di {
namespace {

CpuFeatures features_up_to(int level) {
  CpuFeatures features;
  features.avx2_fma = level >= 1;
  features.avx512 = level >= 2;
  features.avx512_vnni = features.avx512_vbmi = features.avx512_bf16 = level >= 3;
  features.amx_int8 = level >= 4;
  return features;
}

TEST(Isa, EveryNameReadsBack) {
  for (const Isa isa : {Isa::kAvx2, Isa::kAvx512, Isa::kVnni, Isa::kAmx})
    EXPECT_EQ(isa_from_name(name_of(isa)), isa);
  EXPECT_THROW(isa_from_name("sse2"), Error);
}

TEST(Isa, TheBestPathNeedsAllOfItsFeatures) {
  EXPECT_THROW(best_isa(features_up_to(0)), Error);
  EXPECT_EQ(best_isa(features_up_to(1)), Isa::kAvx2);
  EXPECT_EQ(best_isa(features_up_to(2)), Isa::kAvx512);
  EXPECT_EQ(best_isa(features_up_to(3)), Isa::kVnni);
  EXPECT_EQ(best_isa(features_up_to(4)), Isa::kAmx);
  CpuFeatures without_bf16 = features_up_to(4);
  without_bf16.avx512_bf16 = false;
  EXPECT_EQ(best_isa(without_bf16), Isa::kAvx512);
}

TEST(Isa, UsablePathsEndWithTheBest) {
  EXPECT_TRUE(usable_isas(features_up_to(0)).empty());
  EXPECT_EQ(usable_isas(features_up_to(1)), std::vector{Isa::kAvx2});
  EXPECT_EQ(usable_isas(features_up_to(3)), (std::vector{Isa::kAvx2, Isa::kAvx512, Isa::kVnni}));
  EXPECT_EQ(usable_isas(features_up_to(4)).back(), Isa::kAmx);
}

TEST(Isa, ThisProcessorHasAName) {
  EXPECT_FALSE(detect_cpu().model.empty());
}

}  // namespace
}  // namespace di
