#include "verify/model_run.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "text/engram_token_map.h"
#include "text/tokenizer.h"
#include "verify/cache_record.h"

namespace di::verify {
namespace {

/// Records what the pass computes and, when forced, puts the golden tensor in its place.
class Recorder : public model::Observer {
 public:
  Recorder(const RunRequest& request, Record& record) : request_(request), record_(record) {}

  /// Tensors of the following passes are recorded as `phase`.*.
  void begin(const std::string& phase) { phase_ = phase; }

  void observe(std::string_view name, int64_t layer, const model::ObservedTensor& tensor) override {
    const std::string full = layer < 0 ? fmt::format("{}.{}", phase_, name)
                                       : fmt::format("{}.L{}.{}", phase_, layer, name);
    Recorded& recorded = record_[full];
    append(tensor, recorded);
    if (request_.force && phase_ == "prefill" && request_.fixture->has(full)) replace(full, tensor);
  }

 private:
  static void append(const model::ObservedTensor& tensor, Recorded& recorded) {
    int64_t count = 1;
    for (const int64_t d : tensor.shape)
      count *= d;
    if (recorded.shape.empty()) {
      recorded.shape = tensor.shape;
    } else {
      recorded.shape[0] += tensor.shape[0];
    }
    for (int64_t i = 0; i < count; ++i) {
      switch (tensor.dtype) {
        case DType::kF32:
          recorded.floats.push_back(static_cast<const float*>(tensor.data)[i]);
          break;
        case DType::kBf16:
          recorded.floats.push_back(to_float(static_cast<const bf16*>(tensor.data)[i]));
          break;
        case DType::kI32:
          recorded.integers.push_back(static_cast<const int32_t*>(tensor.data)[i]);
          break;
        default: recorded.integers.push_back(static_cast<const int64_t*>(tensor.data)[i]);
      }
    }
    recorded.is_integer = !recorded.integers.empty();
  }

  /// Golden values into the pass. Selections may be narrower in the fixture; the rest is unused.
  void replace(const std::string& name, const model::ObservedTensor& tensor) const {
    const std::vector<int64_t>& shape = request_.fixture->shape(name);
    if (tensor.dtype == DType::kF32) {
      const std::vector<float> golden = request_.fixture->floats(name);
      std::copy(golden.begin(), golden.end(), static_cast<float*>(tensor.data));
    } else if (tensor.dtype == DType::kBf16) {
      const std::vector<bf16> golden = request_.fixture->bf16s(name);
      std::copy(golden.begin(), golden.end(), static_cast<bf16*>(tensor.data));
    } else if (tensor.dtype == DType::kI32 && name.ends_with("index_topk")) {
      const std::vector<int64_t> golden = request_.fixture->integers(name);
      auto* ids = static_cast<int32_t*>(tensor.data);
      std::fill_n(ids, tensor.shape[0] * tensor.shape[1], -1);
      for (int64_t row = 0; row < shape[0]; ++row) {
        int32_t* out = ids + row * tensor.shape[1];
        for (int64_t i = 0; i < shape[1]; ++i) {
          const int64_t id = golden[static_cast<std::size_t>(row * shape[1] + i)];
          if (id >= 0) *out++ = static_cast<int32_t>(id);
        }
      }
    } else if (tensor.dtype == DType::kI32 && name.ends_with("expert_ids")) {
      const std::vector<int64_t> golden = request_.fixture->integers(name);
      std::transform(
          golden.begin(),
          golden.end(),
          static_cast<int32_t*>(tensor.data),
          [](int64_t id) { return static_cast<int32_t>(id); }
      );
    }
  }

  const RunRequest& request_;
  Record& record_;
  std::string phase_ = "prefill";
};

/// Image rows of the prompt, from token_types and the golden projector rows.
class PromptImages {
 public:
  PromptImages(const Fixture& fixture, const checkpoint::Checkpoint& checkpoint) {
    if (!fixture.has("token_types")) return;
    constexpr int64_t kText = -1, kStart = 0, kImage = 1, kNewline = 2, kEnd = 3;
    for (int n = 0; fixture.has(fmt::format("image{}.aligner", n)); ++n) {
      const std::vector<bf16> rows = fixture.bf16s(fmt::format("image{}.aligner", n));
      projected_.insert(projected_.end(), rows.begin(), rows.end());
    }
    const std::vector<int64_t> types = fixture.integers("token_types");
    const int64_t hidden = checkpoint.config().hidden_size;
    for (const char* name : {"image_start", "image_newline", "image_end"}) {
      const checkpoint::TensorView tensor = checkpoint.find(name);
      std::vector<bf16>& mark = marks_.emplace_back(static_cast<std::size_t>(hidden));
      std::memcpy(mark.data(), tensor.bytes.data(), tensor.bytes.size());
    }
    int64_t image_row = 0;
    for (std::size_t i = 0; i < types.size(); ++i) {
      rows_.is_image.push_back(types[i] == kText ? 0 : 1);
      const bf16* value = types[i] == kStart     ? marks_[0].data()
                          : types[i] == kNewline ? marks_[1].data()
                          : types[i] == kEnd     ? marks_[2].data()
                          : types[i] == kImage   ? projected_.data() + image_row++ * hidden
                                                 : nullptr;
      if (value != nullptr) rows_.embeddings.push_back({static_cast<int64_t>(i), value});
    }
  }

  /// The image rows among prompt tokens [begin, begin + count).
  model::ImageRows slice(int64_t begin, int64_t count) const {
    model::ImageRows slice;
    if (rows_.is_image.empty()) return slice;
    slice.is_image.assign(rows_.is_image.begin() + begin, rows_.is_image.begin() + begin + count);
    for (const model::RowEmbedding& given : rows_.embeddings) {
      if (given.row >= begin && given.row < begin + count) {
        slice.embeddings.push_back({given.row - begin, given.value});
      }
    }
    return slice;
  }

 private:
  std::vector<bf16> projected_;
  std::vector<std::vector<bf16>> marks_;
  model::ImageRows rows_;
};

std::vector<int32_t> token_ids(const Fixture& fixture, const std::string& name) {
  std::vector<int32_t> ids;
  if (!fixture.has(name)) return ids;
  for (const int64_t id : fixture.integers(name))
    ids.push_back(static_cast<int32_t>(id));
  return ids;
}

void append_logits(
    Record& record, const std::string& name, const std::vector<float>& logits, int64_t vocab
) {
  Recorded& recorded = record[name];
  recorded.floats.insert(recorded.floats.end(), logits.begin(), logits.end());
  recorded.shape = {std::ssize(recorded.floats) / vocab, vocab};
}

/// The draft behind all tokens of the session so far, as tensors `name`.*.
void record_draft(
    const std::string& name,
    model::Session& session,
    int32_t anchor,
    const ModelConfig& config,
    Record& record
) {
  const int64_t length = config.draft.dspark_block_size;
  const model::Drafts drafts = session.draft(anchor, length);
  Recorded& tokens = record[name + ".tokens"];
  tokens = {.integers = {anchor}, .shape = {length + 1}, .is_integer = true};
  tokens.integers.insert(tokens.integers.end(), drafts.tokens.begin(), drafts.tokens.end());
  record[name + ".confidence"] = {.floats = drafts.confidence, .shape = {length}};
  record[name + ".logits"] = {.floats = drafts.logits, .shape = {length, config.vocab_size}};
  record[name + ".pos"] = {
      .integers = {std::ssize(session.tokens()) - 1}, .shape = {1}, .is_integer = true};
}

}  // namespace

LoadedModel load_for_verify(const std::string& folder, const ops::OpTable& ops, ThreadPool& pool) {
  checkpoint::Checkpoint checkpoint = checkpoint::Checkpoint::open(folder, pool);
  std::vector<int32_t> token_map;
  if (checkpoint.config().engram.enabled()) {
    const text::Tokenizer tokenizer = text::Tokenizer::load(folder + "/tokenizer.json");
    const auto vocab_size = static_cast<int32_t>(checkpoint.config().vocab_size);
    token_map = text::build_engram_token_map(tokenizer, vocab_size).compressed;
  }
  model::Model model =
      model::load_model(checkpoint, std::move(token_map), ops, pool, nullptr, {.drafts = true});
  return {std::move(checkpoint), std::move(model)};
}

Record run_case(
    const LoadedModel& loaded, const RunRequest& request, const ops::OpTable& ops, ThreadPool& pool
) {
  const Fixture& fixture = *request.fixture;
  const std::vector<int32_t> prompt = token_ids(fixture, "input_ids");
  const std::vector<int32_t> decode = token_ids(fixture, request.decode_tokens);
  const std::span<const int32_t> all(prompt);
  const PromptImages images(fixture, loaded.checkpoint);
  const int64_t vocab = loaded.model.config.vocab_size;

  Record record;
  Recorder recorder(request, record);
  ops::OwnedExec owned_exec(pool, ops.memory());
  ops::Exec& exec = *owned_exec;
  const auto tokens = static_cast<int64_t>(prompt.size() + decode.size());
  const int64_t blocks = (tokens + cache::kBlockTokens - 1) / cache::kBlockTokens;
  cache::KvCache cache(
      cache::make_layout(loaded.model.config), blocks, /*num_slots=*/1, ops.memory()
  );
  model::Session session(
      loaded.model,
      cache,
      ops,
      exec,
      {.replay = request.replay, .draft_context = true, .observer = &recorder}
  );
  session.set_prompt_length(std::ssize(prompt));

  std::vector<int64_t> chunks = request.chunks;
  if (chunks.empty()) chunks.push_back(std::ssize(prompt));
  int64_t begin = 0;
  for (const int64_t count : chunks) {
    const auto piece =
        all.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(count));
    const bool last = begin + count == std::ssize(prompt);
    const bool none = request.prompt_logits == model::LogitRows::kLast && !last;
    append_logits(
        record,
        "prefill.logits",
        session.feed(
            piece,
            none ? model::LogitRows::kNone : request.prompt_logits,
            images.slice(begin, count)
        ),
        vocab
    );
    begin += count;
  }
  record_caches("cache", loaded.model, *cache.on_host(exec.stream), session, record);

  for (std::size_t i = 0; i < decode.size(); ++i) {
    recorder.begin("decode");
    if (i > 0) {
      const auto token = std::span(decode).subspan(i - 1, 1);
      append_logits(record, "decode.logits", session.feed(token), vocab);
    }
    const std::string name = fmt::format("draft{}", i);
    if (!request.drafts || !fixture.has(name + ".tokens")) continue;
    recorder.begin(name);
    record_draft(name, session, decode[i], loaded.model.config, record);
  }
  record_caches("cache_end", loaded.model, *cache.on_host(exec.stream), session, record);
  return record;
}

}  // namespace di::verify
