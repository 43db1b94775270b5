// Safetensors files: what a good one gives, and that each broken one is refused by name.
#include "checkpoint/safetensors.h"

#include <string>

#include <gtest/gtest.h>

#include "base/error.h"
#include "checkpoint/test_files.h"

namespace di::checkpoint {
namespace {

/// The message with which a file is refused; empty when it is accepted.
std::string refusal(const std::string& file) {
  try {
    parse_safetensors(as_bytes(file), "w.safetensors");
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidFile);
    return error.what();
  }
}

TEST(Safetensors, GivesTensorsInTheOrderOfTheirBytes) {
  const std::string file = safetensors_bytes(
      R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[2,1],"data_offsets":[3,11]},)"
      R"("a":{"dtype":"F8_E4M3","shape":[3],"data_offsets":[0,3]}}   )",
      "abc01234567"
  );
  const auto tensors = parse_safetensors(as_bytes(file), "w");
  ASSERT_EQ(tensors.size(), 2u);
  EXPECT_EQ(tensors[0].name, "a");
  EXPECT_EQ(tensors[0].dtype, DType::kF8E4M3);
  EXPECT_EQ(tensors[1].name, "b");
  EXPECT_EQ(tensors[1].shape, (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(static_cast<char>(tensors[1].bytes[0]), '0');
  EXPECT_EQ(tensors[1].bytes.size(), 8u);
}

TEST(Safetensors, AcceptsScalarsAndEmptyTensors) {
  const std::string file = safetensors_bytes(
      R"({"scalar":{"dtype":"I8","shape":[],"data_offsets":[0,1]},)"
      R"("none":{"dtype":"F32","shape":[0,9],"data_offsets":[1,1]}})",
      "x"
  );
  EXPECT_EQ(parse_safetensors(as_bytes(file), "w").size(), 2u);
  EXPECT_TRUE(parse_safetensors(as_bytes(safetensors_bytes("{}", "")), "w").empty());
}

/// One tensor's entry with 4 bytes of data.
std::string with_entry(const std::string& entry) {
  return safetensors_bytes("{\"t\":" + entry + "}", "1234");
}

TEST(Safetensors, RefusesEachBrokenFileByName) {
  const std::string good = with_entry(R"({"dtype":"F32","shape":[1],"data_offsets":[0,4]})");
  EXPECT_EQ(refusal(good), "");
  const std::string two = R"({"a":{"dtype":"I8","shape":[3],"data_offsets":[0,3]},)";
  const std::pair<std::string, const char*> files[] = {
      {"", "holds 0 bytes"},
      {"1234567", "holds 7 bytes"},
      {good.substr(0, 20), "but holds only 12 after the length"},
      {good.substr(0, good.size() - 1), "its bytes are [0, 4), but the file holds 3"},
      {good + "x", "holds 1 bytes that belong to no tensor"},
      {safetensors_bytes("", ""), "its header does not start with {"},
      {safetensors_bytes("[]", ""), "its header does not start with {"},
      {safetensors_bytes("{}", "", INT64_MAX), "states a header of 9223372036854775807 bytes"},
      {std::string(8, '\xff') + "{}", "states a header of 18446744073709551615 bytes"},
      {safetensors_bytes("{\"t\": ", "1234"), "not JSON at byte"},
      {safetensors_bytes("{\"t\": \"\xc3\x28\"}", "1234"), "not JSON at byte"},
      {safetensors_bytes("{\"\xff\": 1}", "1234"), "not JSON at byte"},
      {safetensors_bytes("{\"t\":" + std::string(5000, '['), ""), "nested deeper than 4 levels"},
      {safetensors_bytes(two + R"("a":{"dtype":"I8","shape":[1],"data_offsets":[3,4]}})", "1234"),
       "stands twice"},
      {safetensors_bytes(two + R"("b":{"dtype":"I8","shape":[2],"data_offsets":[2,4]}})", "1234"),
       "tensor \"b\" overlaps the bytes before it"},
      {safetensors_bytes(two + R"("b":{"dtype":"I8","shape":[3],"data_offsets":[0,3]}})", "123"),
       "tensor \"b\" overlaps the bytes before it"},
      {safetensors_bytes(two + R"("b":{"dtype":"I8","shape":[1],"data_offsets":[4,5]}})", "12345"),
       "tensor \"b\" leaves a gap after the bytes before it"},
      {safetensors_bytes(R"({"__metadata__":{"n":1}})", ""), "__metadata__ \"n\" is no string"},
      {safetensors_bytes(R"({"__metadata__":[]})", ""), "__metadata__ is no object"},
      {with_entry("7"), "its entry must hold exactly dtype, shape and data_offsets"},
      {with_entry(R"({"dtype":"F32","shape":[1]})"), "must hold exactly"},
      {with_entry(R"({"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1})"),
       "must hold exactly"},
      {with_entry(R"({"dtype":"F33","shape":[1],"data_offsets":[0,4]})"), "unknown dtype \"F33\""},
      {with_entry(R"({"dtype":4,"shape":[1],"data_offsets":[0,4]})"), "dtype is integer"},
      {with_entry(R"({"dtype":"F32","shape":1,"data_offsets":[0,4]})"), "shape is integer"},
      {with_entry(R"({"dtype":"F32","shape":[-1],"data_offsets":[0,4]})"), "shape holds -1"},
      {with_entry(R"({"dtype":"F32","shape":[1.0],"data_offsets":[0,4]})"), "shape holds 1.0"},
      {with_entry(R"({"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,4]})"),
       "shape holds 18446744073709551615"},
      {with_entry(R"({"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]})"),
       "has more bytes than 64 bits count"},
      {with_entry(R"({"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,4]})"),
       "shape holds 4611686018427387904"},
      {with_entry(R"({"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,4]})"),
       "has 9 dimensions"},
      {with_entry(R"({"dtype":"F32","shape":[2],"data_offsets":[0,4]})"),
       "F32 [2] takes 8 bytes, but data_offsets span 4"},
      {with_entry(R"({"dtype":"BF16","shape":[1],"data_offsets":[0,4]})"), "takes 2 bytes"},
      {with_entry(R"({"dtype":"F32","shape":[1],"data_offsets":[4,0]})"), "its bytes are [4, 0)"},
      {with_entry(R"({"dtype":"F32","shape":[1],"data_offsets":[0]})"), "two integers"},
      {with_entry(R"({"dtype":"F32","shape":[1],"data_offsets":[-4,0]})"), "data_offsets holds -4"},
      {with_entry(R"({"dtype":"F32","shape":[1],"data_offsets":[18446744073709551612,0]})"),
       "data_offsets holds 18446744073709551612"},
      {with_entry(R"({"dtype":"F32","shape":[1],"data_offsets":[0,"4"]})"), "holds \"4\""},
  };
  for (const auto& [file, words] : files) {
    const std::string message = refusal(file);
    EXPECT_NE(message.find(words), std::string::npos) << words << " not in: " << message;
    EXPECT_EQ(message.rfind("w.safetensors: ", 0), 0u) << message;
  }
}

}  // namespace
}  // namespace di::checkpoint
