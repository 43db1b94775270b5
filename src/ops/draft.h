// The end of a draft: from base logits to tokens, one position after another. Source: specification
// section 6.1, "Markov head".
#pragma once

#include "ops/weight.h"
#include "tensor/number_formats.h"
#include "tensor/view.h"

namespace di::ops {

/// One position of the drafts of many sequences. With e = embed[previous], the bias e · headᵀ is
/// accumulated in double, rounded once to fp32 and added to the base logits in fp32, tile by tile:
/// nothing holds the bias of a whole vocabulary.
struct MarkovRound {
  View<float, 2> logits;            // [rows, vocab_size]: base logits, then with the bias
  View<int32_t, 1> best;            // [rows]: the best token, ties to the lower id; NaN is never
                                    // it, and 0 is when there is no other
  View<bf16, 2> features;           // [rows, width + rank]: the last columns become e
  View<const int32_t, 1> previous;  // [rows]: the tokens before, ids of the vocabulary
  View<const bf16, 2> embed;        // [vocab_size, rank]
  Weight head;                      // kBf16 [vocab_size, rank]
};

}  // namespace di::ops
