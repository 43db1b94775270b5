// Test helper: small models, and sequences that are fed by hand in any mixture of pieces.
#pragma once

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/isa.h"
#include "model/draft.h"
#include "ops/place.h"

#if DI_HAS_CUDA
#include "ops/cuda/cuda_ops.h"
#endif

namespace di::model::testing {

/// A backend by the name that tests print: "ref" or an instruction set of cpu.
struct Backend {
  std::string name;
  const ops::OpTable* ops;
};

/// ref, and cpu for every instruction set of this processor.
inline std::vector<Backend> backends() {
  std::vector<Backend> all = {{"ref", &ops::ref_ops()}};
  for (const Isa isa : usable_isas(detect_cpu()))
    all.push_back({name_of(isa), &ops::cpu_ops(isa)});
  return all;
}

/// backends(), and cuda in both arithmetics where there is a device: what every backend must do by
/// itself, without the bits of ref.
inline std::vector<Backend> backends_and_devices() {
  std::vector<Backend> all = backends();
#if DI_HAS_CUDA
  try {
    all.push_back({"cuda", &ops::cuda_ops()});
    all.push_back({"cuda_canonical", &ops::canonical_cuda_ops()});
  } catch (const Error&) {  // no device
  }
#endif
  return all;
}

/// A checkpoint folder loaded for a backend. Tokens are dealt to the n-gram classes in turn, which
/// needs no tokenizer and is as good a map as any.
class TestModel {
 public:
  TestModel(const std::string& folder, const ops::OpTable& ops)
      : ops_(ops),
        checkpoint_(checkpoint::Checkpoint::open(folder, pool_)),
        model_(load_model(
            checkpoint_, token_map(checkpoint_.config()), ops, pool_, nullptr, {.drafts = true}
        )) {}

  const Model& model() const { return model_; }
  const ModelConfig& config() const { return model_.config; }
  const ops::OpTable& ops() const { return ops_; }

 private:
  static std::vector<int32_t> token_map(const ModelConfig& config) {
    std::vector<int32_t> map;
    const int64_t classes = config.engram.engram_compressed_vocab_size;
    for (int64_t id = 0; id < config.vocab_size && classes > 0; ++id)
      map.push_back(static_cast<int32_t>(id % classes));
    return map;
  }

  const ops::OpTable& ops_;
  ThreadPool pool_{1};
  checkpoint::Checkpoint checkpoint_;
  Model model_;
};

/// What a sequence is fed with. Image rows carry an embedding of their own.
struct Timeline {
  std::vector<int32_t> tokens;
  std::vector<uint8_t> is_image;  ///< for each token
  std::vector<bf16> embeddings;   ///< [tokens, hidden_size]; read where is_image
  int64_t prompt_length = 0;
};

/// Random tokens; about one timeline in three holds a span of image rows.
inline Timeline random_timeline(std::mt19937& random, const ModelConfig& config, int64_t length) {
  const auto below = [&](int64_t count) {
    return std::uniform_int_distribution<int64_t>(0, count - 1)(random);
  };
  Timeline timeline;
  timeline.prompt_length = length;
  const int64_t image_begin = below(3) == 0 ? below(length) : length;
  const int64_t image_end = std::min(length, image_begin + 1 + below(12));
  std::normal_distribution<float> normal;
  for (int64_t i = 0; i < length; ++i) {
    timeline.tokens.push_back(static_cast<int32_t>(below(config.vocab_size)));
    timeline.is_image.push_back(i >= image_begin && i < image_end ? 1 : 0);
    for (int64_t d = 0; d < config.hidden_size; ++d)
      timeline.embeddings.push_back(to_bf16(normal(random)));
  }
  return timeline;
}

/// A sequence on its way: the rows before `fed` have been computed.
struct Lane {
  Lane(const Timeline& what, cache::KvCache& cache) : timeline(what), state(cache) {}

  int64_t left() const { return std::ssize(timeline.tokens) - fed; }

  Timeline timeline;
  cache::SequenceState state;
  int64_t fed = 0;
  std::vector<float> logits;  ///< of the rows that had some, in order
};

/// `count` more rows of a lane.
struct Piece {
  Lane* lane;
  int64_t count;
};

/// Caches, threads and scratch around one model.
class Rig {
 public:
  Rig(const TestModel& model, int num_threads, const Replay& replay = {})
      : model_(model),
        pool_(num_threads),
        exec_(pool_, model.ops().memory()),
        inputs_(pool_, model.ops().memory()),
        cache_(cache::make_layout(model.config()), kBlocks, kSlots, model.ops().memory()),
        options_{.replay = replay, .draft_context = true} {}

  virtual ~Rig() = default;

  cache::KvCache& cache() { return cache_; }

  /// From now on slots and blocks are handed out in a random order.
  void scatter(std::mt19937& random) {
    std::vector<cache::SequenceState> taken;
    for (int64_t i = 0; i < kSlots; ++i) {
      taken.emplace_back(cache_);
      taken.back().reserve_tokens(kBlocks / kSlots * cache::kBlockTokens);
    }
    std::vector<std::size_t> order(taken.size());
    for (std::size_t i = 0; i < order.size(); ++i)
      order[i] = i;
    std::shuffle(order.begin(), order.end(), random);
    for (const std::size_t i : order)
      const cache::SequenceState given_back(std::move(taken[i]));
  }

  /// One pass. Every row gets logits; under bounded replay the last prompt row and those after it.
  void step(const std::vector<Piece>& pieces) {
    const Arena::Scope scope(exec_->scratch);
    const Arena::Scope inputs(inputs_->scratch);
    Step step;
    std::vector<std::vector<RowEmbedding>> embeddings(pieces.size());
    for (std::size_t i = 0; i < pieces.size(); ++i)
      step.sequences.push_back(input(pieces[i], embeddings[i]));
    const StepOutput output = pass(step);
    const std::vector<float> logits = ops::fetch(*exec_, output.logits);
    exec_->scratch.memory().wait(exec_->stream);  // no row may have had logits
    const float* next = logits.data();
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      const LogitRows wanted = step.sequences[i].logits;
      const int64_t rows = wanted == LogitRows::kAll    ? pieces[i].count
                           : wanted == LogitRows::kLast ? 1
                                                        : 0;
      const int64_t count = rows * model_.config().vocab_size;
      pieces[i].lane->logits.insert(pieces[i].lane->logits.end(), next, next + count);
      pieces[i].lane->fed += pieces[i].count;
      next += count;
    }
  }

  /// Drafts of `length` tokens for lanes that were fed up to their next tokens, all at once; the
  /// drafts of one lane behind those of another.
  std::vector<Drafts> draft(const std::vector<Lane*>& lanes, int64_t length) {
    const Arena::Scope scope(exec_->scratch);
    const Arena::Scope inputs(inputs_->scratch);
    std::vector<int32_t> anchors;
    DraftStep step{.sequences = {}, .anchors = {}, .length = length};
    for (const Lane* lane : lanes) {
      const auto known = static_cast<std::size_t>(lane->fed + 1);
      anchors.push_back(lane->timeline.tokens[known - 1]);
      step.sequences.push_back(
          {.tokens = placed(std::span(lane->timeline.tokens).first(known)),
           .slot = lane->state.slot(),
           .prompt_length = lane->timeline.prompt_length}
      );
    }
    step.anchors = placed_view(std::span<const int32_t>(anchors));
    const DraftOutput output = draft_pass(step);
    const auto count = static_cast<std::size_t>(output.tokens.dim(1));
    const std::vector<int32_t> tokens = ops::fetch(*exec_, output.tokens);
    const std::vector<float> confidence = ops::fetch(*exec_, output.confidence);
    const std::vector<float> logits = ops::fetch(*exec_, output.logits);
    std::vector<Drafts> drafts(lanes.size());
    for (std::size_t row = 0; row < tokens.size(); ++row) {
      if (row % count >= lanes.size()) continue;  // nobody's
      Drafts& of_lane = drafts[row % count];
      const auto vocab = static_cast<std::size_t>(model_.config().vocab_size);
      const float* first = &logits[row * vocab];
      of_lane.tokens.push_back(tokens[row]);
      of_lane.confidence.push_back(confidence[row]);
      of_lane.logits.insert(of_lane.logits.end(), first, first + vocab);
    }
    return drafts;
  }

  /// Every byte of the caches that a later row of the lane could read.
  std::vector<std::byte> cache_bytes(const Lane& lane) {
    const auto cache = cache_.on_host(exec_->stream);
    std::vector<std::byte> bytes;
    const ModelConfig& config = model_.config();
    for (int64_t l = 0; l < config.num_layers(); ++l) {
      const LayerRole& role = model_.model().roles[static_cast<std::size_t>(l)];
      append_window(*cache, lane, l, bytes);
      if (role.is_kv_source) append_entries(*cache, lane, l, role.ratio, bytes);
    }
    return bytes;
  }

 protected:
  virtual StepOutput pass(const Step& step) {
    return forward(model_.model(), step, cache_, model_.ops(), *exec_, options_);
  }
  virtual DraftOutput draft_pass(const DraftStep& step) {
    return model::draft(model_.model(), step, cache_, model_.ops(), *exec_, options_);
  }

  const TestModel& model_;
  ThreadPool pool_;
  ops::OwnedExec exec_;    // of passes
  ops::OwnedExec inputs_;  // of what lies elsewhere from pass to pass
  cache::KvCache cache_;
  ForwardOptions options_;

 private:
  static constexpr int64_t kSlots = 6;
  static constexpr int64_t kBlocks = 36;

  /// `values` where ops read them.
  template <class T>
  View<const T, 1> placed_view(std::span<const T> values) {
    const View<const T, 1> view = ops::place(*inputs_, values);
    inputs_->scratch.memory().wait(inputs_->stream);
    return view;
  }
  template <class T>
  std::span<const T> placed(std::span<const T> values) {
    return {placed_view(values).data, values.size()};
  }

  SequenceInput input(const Piece& piece, std::vector<RowEmbedding>& embeddings) {
    Lane& lane = *piece.lane;
    const Timeline& timeline = lane.timeline;
    const auto fed = static_cast<std::size_t>(lane.fed);
    const auto count = static_cast<std::size_t>(piece.count);
    lane.state.reserve_tokens(lane.fed + piece.count);
    for (std::size_t i = 0; i < count; ++i) {
      const auto at = static_cast<std::ptrdiff_t>(fed + i) * model_.config().hidden_size;
      if (timeline.is_image[fed + i] != 0)
        embeddings.push_back({static_cast<int64_t>(i), timeline.embeddings.data() + at});
    }
    const bool replays = options_.replay.mode != Replay::Mode::kOff;
    const bool ends_prompt = lane.fed + piece.count >= timeline.prompt_length;
    return {
        .tokens = placed(std::span(timeline.tokens).first(fed + count)),
        .start = lane.fed,
        .slot = lane.state.slot(),
        .block_table = placed(std::span(lane.state.block_table())).data(),
        .prompt_length = timeline.prompt_length,
        .logits = !replays      ? LogitRows::kAll
                  : ends_prompt ? LogitRows::kLast
                                : LogitRows::kNone,
        .is_image = placed(std::span(timeline.is_image).first(fed + count)),
        .embeddings = embeddings};
  }

  static void append(const std::byte* from, int64_t count, std::vector<std::byte>& bytes) {
    bytes.insert(bytes.end(), from, from + count);
  }

  void append_window(
      const cache::KvCache& cache, const Lane& lane, int64_t l, std::vector<std::byte>& bytes
  ) const {
    const ModelConfig& config = model_.config();
    const ops::RingView ring = cache.ring(l);
    const bool narrowed =
        options_.replay.mode != Replay::Mode::kOff && l >= first_decoder_layer(config);
    const int64_t visible = narrowed ? lane.timeline.prompt_length - options_.replay.keep : 0;
    const int64_t oldest =
        std::max({int64_t{0}, lane.fed - config.attention.sliding_window, visible});
    for (int64_t p = oldest; p < lane.fed; ++p)
      append(ring.at(lane.state.slot(), p), ring.record_bytes, bytes);
  }

  void append_entries(
      const cache::KvCache& cache,
      const Lane& lane,
      int64_t l,
      int64_t ratio,
      std::vector<std::byte>& bytes
  ) const {
    const ops::PagedView kv = cache.compressed(l);
    const ops::PagedView keys = cache.index_keys(l);
    const int64_t scale_bytes = keys.record_bytes / 16;
    for (int64_t j = 0; j < lane.fed / ratio; ++j) {
      const std::byte* section = keys.section(lane.state.block_table().data(), j);
      const int64_t at = j % keys.entries_per_block;
      append(kv.record(lane.state.block_table().data(), j), kv.record_bytes, bytes);
      append(section + at * keys.record_bytes, keys.record_bytes, bytes);
      append(
          section + keys.entries_per_block * keys.record_bytes + at * scale_bytes,
          scale_bytes,
          bytes
      );
    }
    const ops::RingView carry = cache.carry(l);
    for (int64_t p = lane.fed / ratio * ratio; p < lane.fed; ++p)
      append(carry.at(lane.state.slot(), p), carry.record_bytes, bytes);
  }
};

/// What a sequence leaves behind.
struct Trace {
  std::vector<float> logits;
  std::vector<std::byte> cache;

  bool operator==(const Trace& other) const {
    return logits.size() == other.logits.size() && cache == other.cache &&
           std::memcmp(logits.data(), other.logits.data(), logits.size() * sizeof(float)) == 0;
  }
};

/// A timeline alone, in one piece.
inline Trace run_alone(const TestModel& model, const Timeline& timeline, int num_threads = 1) {
  Rig rig(model, num_threads);
  Lane lane(timeline, rig.cache());
  rig.step({{&lane, lane.left()}});
  return {lane.logits, rig.cache_bytes(lane)};
}

/// The rows of a lane's next piece: a single decode row as often as a chunk of its prompt.
inline int64_t random_count(std::mt19937& random, const Lane& lane) {
  const int64_t prompt_left = lane.timeline.prompt_length - lane.fed;
  if (prompt_left <= 0 || random() % 2 == 0) return 1;
  return std::min<int64_t>(prompt_left, 1 + static_cast<int64_t>(random() % 60));
}

/// Feeds all lanes to their ends: each pass takes some of them, in any order, with pieces of any
/// length.
inline void run_ragged(Rig& rig, std::vector<Lane>& lanes, std::mt19937& random) {
  for (;;) {
    std::vector<Lane*> open;
    for (Lane& lane : lanes) {
      if (lane.left() > 0) open.push_back(&lane);
    }
    if (open.empty()) return;
    std::shuffle(open.begin(), open.end(), random);
    open.resize(1 + random() % open.size());
    std::vector<Piece> pieces;
    for (Lane* lane : open)
      pieces.push_back({lane, random_count(random, *lane)});
    rig.step(pieces);
  }
}

}  // namespace di::model::testing
