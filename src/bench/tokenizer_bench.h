// `deepinfer bench tokenizer`: how fast text becomes ids.
#pragma once

#include <string>
#include <vector>

#include "bench/memory_bench.h"

namespace di::bench {

struct TokenizerBenchOptions {
  std::string tokenizer;           ///< path of a tokenizer.json
  std::vector<std::string> texts;  ///< paths of text files, each encoded whole
};

/// Encodes and decodes every text on one thread, and encodes 1 MiB runs of one character. `rows` is
/// the number of ids, `gbps` the rate in bytes of text. Throws Error for files that cannot be read.
void bench_tokenizer(const TokenizerBenchOptions& options, const Emit& emit);

}  // namespace di::bench
