// Timing the tokenizer; see tokenizer_bench.h.
#include "bench/tokenizer_bench.h"

#include <filesystem>
#include <string_view>

#include <fmt/format.h>

#include "base/mapped_file.h"
#include "bench/timing.h"
#include "text/tokenizer.h"

namespace di::bench {
namespace {

using text::AddedTokens;
using text::Tokenizer;

struct Sample {
  std::string shape;
  std::string text;
};

Json result(const char* name, const Sample& sample, std::size_t ids, const Times& times) {
  const auto bytes = static_cast<double>(sample.text.size());
  return Json::Object{
      {"name", name},
      {"backend", "host"},
      {"isa", "any"},
      {"rows", static_cast<int64_t>(ids)},
      {"shape", sample.shape},
      {"us", times.best_s * 1e6},
      {"gbps", bytes / times.best_s * 1e-9},
      {"gflops", 0.0},
      {"share", 0.0}};
}

std::vector<int32_t> bench_encode(
    const Tokenizer& tokenizer, const Sample& sample, const Emit& emit
) {
  std::vector<int32_t> ids;
  const Times times = time_calls(Patience{}, [&] {
    ids = tokenizer.encode(sample.text, AddedTokens::kRecognised);
  });
  emit(result("encode", sample, ids.size(), times));
  return ids;
}

Sample run_of(std::string_view unit) {
  Sample sample;
  sample.shape = fmt::format("1 MiB of \"{}\"", unit);
  while (sample.text.size() < std::size_t{1} << 20)
    sample.text += unit;
  return sample;
}

}  // namespace

void bench_tokenizer(const TokenizerBenchOptions& options, const Emit& emit) {
  const Tokenizer tokenizer = Tokenizer::load(options.tokenizer);
  for (const std::string& path : options.texts) {
    const Sample sample{std::filesystem::path(path).filename().string(), read_text_file(path)};
    const auto ids = bench_encode(tokenizer, sample, emit);
    std::string decoded;
    const Times times = time_calls(Patience{}, [&] { decoded = tokenizer.decode(ids); });
    emit(result("decode", sample, ids.size(), times));
  }
  for (const std::string_view unit : {"a", " ", ".", "的"}) {
    bench_encode(tokenizer, run_of(unit), emit);
  }
}

}  // namespace di::bench
