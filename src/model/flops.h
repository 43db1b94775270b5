// FlopsCounter: what a step costs in arithmetic, from the model's sizes and the rows of the step
// alone. For statistics, utilisation and cost models; the pass itself never needs it.
//
// A multiply-add is weighed by the format of its operands, in FP8-equivalent FLOPs: FP4 1, FP8 2,
// BF16 4, FP32 8; so a unit is one FLOP of a machine that runs FP8 twice as fast as BF16 and half
// as fast as FP4. Counted are the backbone's matrices and the pairs that attention scores and sums;
// not counted are norms, embeddings, drafts, image encoder and padding. The formats are those of
// the arithmetic that the weights were made for, whatever a backend computes in.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "config/layer_role.h"
#include "config/model_config.h"
#include "model/step.h"

namespace di::model {

/// Arithmetic of one step or a part of it.
struct Flops {
  int64_t attention = 0;   ///< FP8-equivalent FLOPs of pairs: queries with keys, with values and
                           ///< with index keys
  int64_t total = 0;       ///< FP8-equivalent FLOPs, attention's among them
  int64_t unweighted = 0;  ///< two for each multiply-add of `total`, whatever its format

  Flops& operator+=(const Flops& other);
  bool operator==(const Flops&) const = default;
};

/// One sequence's part of a step, as far as its cost goes. A decode row is a run of one row.
struct FlopsRows {
  int64_t start = 0;             ///< position of the first row
  int64_t num_rows = 0;          ///< 0 or more
  int64_t prompt_length = 0;     ///< of the whole prompt; bounded replay counts from its end
  int64_t rows_with_logits = 0;  ///< rows that pass through the head
};

/// Counts for one model and one mode of bounded replay.
///
/// What it counts is exact for these kernels: rows before the replay border cost no decoder layer,
/// and an index key is counted when its entry is complete. So the parts of a sequence always add up
/// to the whole, however it is cut into chunks and decode rows. Windows are counted as if the
/// replay border did not shorten them.
///
/// Thread: constant after construction, any number of readers. Cost: some 25 ns for a decode row.
class FlopsCounter {
 public:
  explicit FlopsCounter(const ModelConfig& config, const Replay& replay = {});

  /// The cost of one sequence's rows in a step; a step costs the sum over its sequences.
  Flops count(const FlopsRows& rows) const;

 private:
  /// A price: multiply-adds, and what they weigh.
  struct Price {
    int64_t units = 0;
    int64_t multiply_adds = 0;

    void add(int64_t weight, int64_t count);
    void add(const Price& other, int64_t times = 1);
  };
  /// Price of one pair, for min(⌊(t + shift) / ratio⌋, cap) pairs of a row that sees t tokens.
  struct Pairs {
    int64_t ratio = 1;
    int64_t shift = 0;
    int64_t cap = 0;
    bool in_decoder = false;
    Price price;

    /// Pairs of the rows at positions [start, end).
    int64_t of_rows(int64_t start, int64_t end) const;
  };
  /// Price of one index key, for each `ratio` tokens.
  struct Keys {
    int64_t ratio = 1;
    Price price;
  };

  void add_layer(const ModelConfig& config, const LayerRole& role);
  void add_kv_source(const ModelConfig& config, const LayerRole& role);
  void add_index_source(const ModelConfig& config, const LayerRole& role);
  void add_hyper_connections(const ModelConfig& config);
  void add_pairs(const Pairs& pairs);

  std::optional<int64_t> keep_;  // of bounded replay, when it skips rows
  Price encoder_row_;            // of a row in all layers that see every row
  Price decoder_row_;            // of a row in the layers behind the replay border
  Price logits_row_;
  std::vector<Keys> keys_;
  std::vector<Pairs> pairs_;
};

/// Σ over t = 1 … n of min(⌊t / ratio⌋, cap), in closed form; 0 for n ≤ 0.
int64_t sum_of_capped_quotients(int64_t n, int64_t ratio, int64_t cap);

}  // namespace di::model
