// The inventory against the published totals of the release.
#include "checkpoint/inventory.h"

#include <map>

#include <gtest/gtest.h>

#include "checkpoint/memory_report.h"
#include "checkpoint/names.h"
#include "config/known_models.h"

namespace di::checkpoint {
namespace {

TEST(Inventory, ReproducesTheTotalsOfTheRelease) {
  std::map<std::string_view, std::pair<int64_t, int64_t>> by_dtype;
  int64_t bytes = 0;
  const auto tensors = expected_tensors(v41_flash_config());
  for (const ExpectedTensor& tensor : tensors) {
    auto& [count, size] = by_dtype[di::name_of(tensor.dtype)];
    count += 1;
    size += tensor.bytes();
    bytes += tensor.bytes();
  }
  EXPECT_EQ(tensors.size(), 96085u);
  EXPECT_EQ(bytes, 510286023000);
  const std::map<std::string_view, std::pair<int64_t, int64_t>> published = {
      {"BF16", {520, 3952883712}},
      {"F32", {387, 169229128}},
      {"F8_E4M3", {357, 204015223296}},
      {"F8_E8M0", {47589, 23563015184}},
      {"I8", {47232, 278585671680}},
  };
  EXPECT_EQ(by_dtype, published);
}

TEST(Inventory, SpeaksOfEachTensorOnce) {
  std::map<std::string, int> seen;
  for (const ExpectedTensor& tensor : expected_tensors(v41_flash_config()))
    EXPECT_EQ(++seen[tensor.name], 1) << tensor.name;
}

TEST(Inventory, LeavesOutWhatAModelDoesNotHave) {
  ModelConfig config = v41_flash_config();
  config.vision.reset();
  config.engram = {};
  config.draft = {};
  config.attention.compress_ratios.resize(40);
  for (const ExpectedTensor& tensor : expected_tensors(config)) {
    for (const char* part : {"engram", "mtp", "vision", "aligner", "image_", "bias_vl"}) {
      EXPECT_EQ(tensor.name.find(part), std::string::npos) << tensor.name;
    }
  }
}

TEST(MemoryReport, SplitsTheReleaseIntoItsParts) {
  const auto totals = totals_by_kind(expected_tensors(v41_flash_config()));
  int64_t tensors = 0;
  int64_t bytes = 0;
  for (const KindTotal& total : totals) {
    tensors += total.tensors;
    bytes += total.bytes;
  }
  EXPECT_EQ(tensors, 96085);
  EXPECT_EQ(bytes, 510286023000);
  const KindTotal& experts = totals[static_cast<std::size_t>(TensorKind::kExperts)];
  EXPECT_EQ(experts.tensors, 40 * 384 * 6);
  EXPECT_EQ(experts.bytes, int64_t{40} * 384 * 3 * 2304 * 5120 * 17 / 32);
}

TEST(Names, LoseTheModelPrefixOnce) {
  EXPECT_EQ(without_prefix("model.embed.weight"), "embed.weight");
  EXPECT_EQ(without_prefix("embed.weight"), "embed.weight");
  EXPECT_EQ(without_prefix("model.model.x"), "model.x");
  EXPECT_EQ(without_prefix("models.x"), "models.x");
}

}  // namespace
}  // namespace di::checkpoint
