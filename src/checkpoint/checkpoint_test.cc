// Whole model folders: the fixtures open and are complete, and each broken copy is refused by name.
#include "checkpoint/checkpoint.h"

#include <filesystem>
#include <functional>
#include <string>

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/json.h"
#include "checkpoint/inventory.h"
#include "checkpoint/test_files.h"

namespace di::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTiny = DI_TESTDATA "/model/tiny";
constexpr const char* kIndex = "model.safetensors.index.json";
constexpr const char* kEmbedShard = "model-00002-of-00014.safetensors";

std::string content(const std::string& path) {
  return read_text_file(path);
}

/// A copy of the tiny checkpoint that a test may break.
class Copy : public TempFolder {
 public:
  Copy() {
    for (const auto& entry : fs::directory_iterator(kTiny)) {
      if (entry.is_regular_file()) write(entry.path().filename().string(), content(entry.path()));
    }
  }

  /// Replaces the first occurrence of `from` in a file; `to` may be longer.
  void replace(std::string_view name, std::string_view from, std::string_view to) const {
    std::string text = content(file(name));
    const auto at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    write(name, text.replace(at, from.size(), to));
  }
};

std::string refusal(const std::string& folder) {
  ThreadPool pool(2);
  try {
    Checkpoint::open(folder, pool);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

void expect_complete(const std::string& folder) {
  ThreadPool pool(2);
  const Checkpoint checkpoint = Checkpoint::open(folder, pool);
  const auto expected = expected_tensors(checkpoint.config());
  int64_t bytes = 0;
  for (const ExpectedTensor& tensor : expected) {
    const TensorView view = checkpoint.find(tensor.name);
    EXPECT_EQ(view.dtype, tensor.dtype);
    EXPECT_EQ(static_cast<int64_t>(view.bytes.size()), tensor.bytes());
    bytes += tensor.bytes();
  }
  EXPECT_EQ(checkpoint.num_tensors(), static_cast<int64_t>(expected.size()));
  EXPECT_EQ(checkpoint.bytes(), bytes);
}

TEST(Checkpoint, OpensTheTinyFixture) {
  expect_complete(kTiny);
}

TEST(Checkpoint, OpensTheDefaultModel) {
  expect_complete(DI_SEEDLING);
}

TEST(Checkpoint, MayBeMovedWhileItsViewsStay) {
  ThreadPool pool(2);
  Checkpoint first = Checkpoint::open(kTiny, pool);
  const TensorView before = first.find("embed.weight");
  const Checkpoint second = std::move(first);
  EXPECT_EQ(second.find("embed.weight").bytes.data(), before.bytes.data());
  EXPECT_THROW(second.find("embed.bias"), Error);
}

TEST(Checkpoint, ReadsTheValuesOfTheRightBytes) {
  ThreadPool pool(2);
  const Checkpoint checkpoint = Checkpoint::open(kTiny, pool);
  const std::string shard = content(std::string(kTiny) + "/" + kEmbedShard);
  const auto bytes = checkpoint.find("embed.weight").bytes;
  EXPECT_EQ(std::memcmp(bytes.data(), shard.data() + shard.size() - bytes.size(), bytes.size()), 0);
}

TEST(Checkpoint, AcceptsNamesWithThePrefixModel) {
  const Copy copy;
  copy.replace(kIndex, "\"embed.weight\"", "\"model.embed.weight\"");
  EXPECT_EQ(refusal(copy.path()), "");
  const std::string shard = content(copy.file(kEmbedShard));
  const std::string data = shard.substr(shard.size() - 400 * 128 * 2);
  const std::string header =
      R"({"model.embed.weight":{"dtype":"BF16","shape":[400,128],"data_offsets":[0,102400]}})";
  copy.write(kEmbedShard, safetensors_bytes(header, data));
  EXPECT_EQ(refusal(copy.path()), "");
}

/// All tensors of the tiny checkpoint in one file.
std::string merged_shards() {
  ThreadPool pool(2);
  const Checkpoint checkpoint = Checkpoint::open(kTiny, pool);
  Json header;
  std::string data;
  for (const ExpectedTensor& tensor : expected_tensors(checkpoint.config())) {
    const TensorView view = checkpoint.find(tensor.name);
    Json::Array shape(tensor.shape.begin(), tensor.shape.end());
    const auto begin = static_cast<int64_t>(data.size());
    data.append(reinterpret_cast<const char*>(view.bytes.data()), view.bytes.size());
    Json entry;
    entry.set("dtype", di::name_of(tensor.dtype)).set("shape", std::move(shape));
    entry.set("data_offsets", Json::Array{begin, static_cast<int64_t>(data.size())});
    header.set(tensor.name, std::move(entry));
  }
  return safetensors_bytes(header.dump(), data);
}

TEST(Checkpoint, OpensASingleFileWithoutIndex) {
  const TempFolder folder;
  folder.write("config.json", content(std::string(kTiny) + "/config.json"));
  folder.write("model.safetensors", merged_shards());
  EXPECT_EQ(refusal(folder.path()), "");
}

/// One way to break a copy of the tiny checkpoint and the words that the refusal must hold.
struct Break {
  std::function<void(const Copy&)> apply;
  const char* words;
};

void truncate(const Copy& copy, const char* name, std::size_t bytes_less) {
  const std::string text = content(copy.file(name));
  copy.write(name, text.substr(0, text.size() - bytes_less));
}

void make_folder(const Copy& copy, const char* name) {
  fs::remove(copy.file(name));
  fs::create_directory(copy.file(name));
}

const Break kBreaks[] = {
    {[](const Copy& c) { fs::remove(c.file("config.json")); }, "config.json: cannot open"},
    {[](const Copy& c) { c.write("config.json", ""); }, "config.json: not JSON at byte"},
    {[](const Copy& c) { make_folder(c, "config.json"); }, "config.json: not a regular file"},
    {[](const Copy& c) { c.write("config.json", std::string(2 << 20, ' ')); }, "at most 1048576"},
    {[](const Copy& c) { c.replace("config.json", "\"vocab_size\": 400", "\"vocab_size\": 401"); },
     "4 of another type or shape: embed.weight is BF16 [400, 128] instead of BF16 [401, 128]"},
    {[](const Copy& c) { c.replace("config.json", "462,", "463,"); },
     "layers.1.engram.embed.scale is F8_E8M0 [462, 1] instead of F8_E8M0 [463, 1]"},
    {[](const Copy& c) {
       c.replace("config.json", "\"n_routed_experts\": 8", "\"n_routed_experts\": 9");
     },
     "42 missing: layers.0.ffn.experts.8.w1.scale"},
    {[](const Copy& c) {
       c.replace("config.json", "\"n_routed_experts\": 8", "\"n_routed_experts\": 7");
     },
     "42 not expected: \"layers.0.ffn.experts.7.w1.scale\""},
    {[](const Copy& c) { fs::remove(c.file(kIndex)); }, "holds neither model.safetensors.index"},
    {[](const Copy& c) { c.write(kIndex, ""); }, "not JSON at byte"},
    {[](const Copy& c) { c.write(kIndex, "[]"); }, "has no object weight_map"},
    {[](const Copy& c) { c.write(kIndex, R"({"weight_map": []})"); }, "has no object weight_map"},
    {[](const Copy& c) { c.write(kIndex, R"({"weight_map": {}, "x": 1})"); }, "unknown key \"x\""},
    {[](const Copy& c) { c.write(kIndex, R"({"weight_map": {}})"); }, "728 missing"},
    {[](const Copy& c) { make_folder(c, kIndex); }, "not a regular file"},
    {[](const Copy& c) { c.replace(kIndex, kEmbedShard, "../model.safetensors"); },
     "lies in \"../model.safetensors\", expected the name of a .safetensors file in the same"},
    {[](const Copy& c) { c.replace(kIndex, kEmbedShard, "/etc/passwd"); }, "expected the name of"},
    {[](const Copy& c) { c.replace(kIndex, kEmbedShard, ".safetensors"); }, "expected the name of"},
    {[](const Copy& c) { c.replace(kIndex, kEmbedShard, "a\\u0000.safetensors"); },
     "expected the name of"},
    {[](const Copy& c) { c.replace(kIndex, kEmbedShard, "absent.safetensors"); },
     "absent.safetensors: cannot open"},
    {[](const Copy& c) { c.replace(kIndex, kEmbedShard, "model-00003-of-00014.safetensors"); },
     "model-00003-of-00014.safetensors: the index says that this file holds tensor "
     "\"embed.weight\", but it does not"},
    {[](const Copy& c) { c.replace(kIndex, "\"embed.weight\"", "\"embed.other\""); },
     "holds tensor \"embed.other\", but it does not"},
    {[](const Copy& c) { c.replace(kIndex, "\"embed.weight\":", "\"model.aligner.w1.bias\":"); },
     "tensor \"aligner.w1.bias\" stands twice, with and without"},
    {[](const Copy& c) { c.replace(kIndex, "\"embed.weight\":", "\"aligner.w1.bias\":"); },
     "the key \"aligner.w1.bias\" stands twice"},
    {[](const Copy& c) { fs::remove(c.file(kEmbedShard)); }, "00002-of-00014.safetensors: cannot"},
    {[](const Copy& c) { c.write(kEmbedShard, ""); }, "00002-of-00014.safetensors: holds 0 bytes"},
    {[](const Copy& c) { make_folder(c, kEmbedShard); }, "not a regular file"},
    {[](const Copy& c) { truncate(c, kEmbedShard, 1); }, "was the download cut off?"},
    {[](const Copy& c) { c.replace(kEmbedShard, "BF16", "F16\""); }, "not JSON at byte"},
    {[](const Copy& c) { c.replace(kEmbedShard, "\"BF16\"", "\"F16\" "); },
     "1 of another type or shape: embed.weight is F16 [400, 128] instead of BF16 [400, 128]"},
    {[](const Copy& c) { c.replace(kEmbedShard, "[400,128]", "[128,400]"); },
     "embed.weight is BF16 [128, 400] instead of BF16 [400, 128]"},
    {[](const Copy& c) {
       c.write(kEmbedShard, content(c.file("model-00010-of-00014.safetensors")));
     },
     "stands in this checkpoint twice"},
    {[](const Copy& c) {
       c.write(
           kEmbedShard,
           safetensors_bytes(R"({"x":{"dtype":"I8","shape":[1],"data_offsets":[0,1]}})", "1")
       );
     },
     "holds tensor \"embed.weight\", but it does not"},
};

TEST(Checkpoint, RefusesEachBrokenFolderByName) {
  for (const Break& broken : kBreaks) {
    const Copy copy;
    broken.apply(copy);
    const std::string message = refusal(copy.path());
    EXPECT_NE(message.find(broken.words), std::string::npos) << broken.words << ": " << message;
  }
}

TEST(Checkpoint, RefusesATensorThatTheIndexDoesNotList) {
  const Copy copy;
  Json index = Json::parse(content(copy.file(kIndex)), "index");
  for (auto& [key, value] : index.as_object()) {
    if (key == "weight_map") {
      std::erase_if(value.as_object(), [](const auto& e) { return e.first == "norm.weight"; });
    }
  }
  copy.write(kIndex, index.dump());
  EXPECT_NE(refusal(copy.path()).find("a shard holds tensor \"norm.weight\""), std::string::npos);
}

TEST(Checkpoint, RefusesFoldersThatAreNone) {
  EXPECT_NE(refusal("/nowhere/at/all").find("no such folder"), std::string::npos);
  EXPECT_NE(refusal(std::string(kTiny) + "/config.json").find("no such folder"), std::string::npos);
  const TempFolder empty;
  EXPECT_NE(refusal(empty.path()).find("config.json: cannot open"), std::string::npos);
}

}  // namespace
}  // namespace di::checkpoint
