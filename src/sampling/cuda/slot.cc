// From SamplingParams to the device's form; see slot.h.
#include "sampling/cuda/slot.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "ops/cuda/memory.h"

namespace di::sampling::cuda {
namespace {

/// Collects arrays in one block of bytes, each at a multiple of 16.
class Bytes {
 public:
  template <class T>
  int64_t add(std::span<const T> values) {
    const auto at = (bytes_.size() + 15) / 16 * 16;
    bytes_.resize(at + values.size_bytes());
    if (!values.empty()) std::memcpy(bytes_.data() + at, values.data(), values.size_bytes());
    return static_cast<int64_t>(at);
  }
  const std::vector<std::byte>& all() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

bool has_penalties(const SamplingParams& params) {
  return params.repetition_penalty != 1 || params.presence_penalty != 0 ||
         params.frequency_penalty != 0;
}

/// SlotParams::seen of a sequence.
std::vector<uint32_t> seen_tokens(
    const SamplingParams& params,
    std::span<const int32_t> prompt,
    std::span<const int32_t> outputs,
    int64_t vocab_size
) {
  std::vector<uint32_t> seen(static_cast<std::size_t>(vocab_size));
  if (params.repetition_penalty != 1) {
    for (const int32_t token : prompt)
      seen[static_cast<std::size_t>(token)] = kInPrompt;
  }
  for (const int32_t token : outputs)
    ++seen[static_cast<std::size_t>(token)];
  return seen;
}

SlotParams numbers_of(const SamplingParams& params, int32_t eos, uint64_t seed) {
  return {
      .temperature = params.temperature,
      .top_p = params.top_p,
      .min_p = params.min_p,
      .repetition_penalty = params.repetition_penalty,
      .presence_penalty = params.presence_penalty,
      .frequency_penalty = params.frequency_penalty,
      .top_k = params.top_k,
      .min_tokens = params.min_tokens,
      .first_n_token_no_eos = params.first_n_token_no_eos,
      .top_logprobs = params.top_logprobs,
      .seed = seed,
      .eos = eos,
      .ignore_eos = params.ignore_eos,
      .wants_logprobs = params.logprobs || params.top_logprobs > 0,
      .processed_logprobs = params.processed_logprobs,
      .allowed = {},
      .banned = {},
      .stops = {},
      .golden = {}};
}

}  // namespace

int64_t slot_area_bytes(int64_t vocab_size) {
  constexpr int64_t kListBytes = 32 << 10;
  return vocab_size * static_cast<int64_t>(sizeof(uint32_t)) + kListBytes;
}

DeviceSlot::DeviceSlot(
    const SamplingParams& params,
    int32_t eos,
    uint64_t seed,
    std::span<const int32_t> prompt,
    std::span<const int32_t> outputs,
    int64_t vocab_size,
    const SlotArea& area,
    Arena& staging,
    cudaStream_t stream
)
    : params_(numbers_of(params, eos, seed)) {
  std::vector<LogitBias> bias = params.logit_bias;
  std::sort(bias.begin(), bias.end(), [](const LogitBias& a, const LogitBias& b) {
    return a.token < b.token;
  });
  const std::vector<int64_t> num_outputs = {std::ssize(outputs)};
  std::vector<uint32_t> seen;
  if (has_penalties(params)) seen = seen_tokens(params, prompt, outputs, vocab_size);

  Bytes bytes;
  const int64_t count_at = bytes.add<int64_t>(num_outputs);
  const int64_t bias_at = bytes.add<LogitBias>(bias);
  const int64_t allowed_at = bytes.add<int32_t>(params.allowed_token_ids);
  const int64_t banned_at = bytes.add<int32_t>(params.banned_token_ids);
  const int64_t stops_at = bytes.add<int32_t>(params.stop_token_ids);
  const int64_t golden_at = bytes.add<int32_t>(params.golden_token_ids);
  const int64_t seen_at = bytes.add<uint32_t>(seen);
  const auto size = static_cast<int64_t>(bytes.all().size());
  const Memory& memory = ops::cuda::device_memory();
  if (size > area.bytes) own_ = memory.allocate(size, "a sequence's sampling parameters");
  std::byte* const place = own_ ? own_.get() : area.data;
  auto* const staged = staging.take<std::byte>(size);
  std::memcpy(staged, bytes.all().data(), bytes.all().size());
  memory.copy(place, staged, size, stream);

  const auto list = [&](int64_t at, const std::vector<int32_t>& ids) {
    return TokenList{reinterpret_cast<const int32_t*>(place + at), std::ssize(ids)};
  };
  params_.allowed = list(allowed_at, params.allowed_token_ids);
  params_.banned = list(banned_at, params.banned_token_ids);
  params_.stops = list(stops_at, params.stop_token_ids);
  params_.golden = list(golden_at, params.golden_token_ids);
  params_.bias = reinterpret_cast<const LogitBias*>(place + bias_at);
  params_.num_biases = std::ssize(bias);
  params_.num_outputs = reinterpret_cast<int64_t*>(place + count_at);
  if (!seen.empty()) params_.seen = reinterpret_cast<uint32_t*>(place + seen_at);
}

}  // namespace di::sampling::cuda
