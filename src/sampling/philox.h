// Philox4x32-10: random numbers as a pure function of a key and a counter, so that a text depends
// on its seed alone and never on what ran before or beside it.
// Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011.
#pragma once

#include <array>
#include <cstdint>

namespace di::sampling {

/// Four words of randomness for a 128-bit counter and a 64-bit key; ten rounds.
std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

/// What a draw is for; draws of different streams are independent.
enum class Stream : uint32_t {
  kTarget = 0,        ///< the token that follows a position
  kDraft = 1,         ///< a draft behind the anchor at a position
  kAcceptance = 2,    ///< whether so many drafts behind the anchor are accepted
  kBehindDrafts = 3,  ///< the token that follows the accepted drafts behind the anchor
  kChoiceSeed = 8,    ///< the seed of one of several choices of a request
  kRequestSeed = 9,   ///< the seed of a request that brings none
};

/// A uniform number in [0, 1) with 53 random bits. Layout: key = seed (low word, high word);
/// counter = position (low word, high word), stream, index; the first two words give the bits.
double uniform(uint64_t seed, int64_t position, Stream stream, uint32_t index = 0);

/// A seed made of another one and an index, in the same layout with the index as the position and 0
/// as the index; the first two words are the seed's low and high word.
uint64_t derived_seed(uint64_t seed, int64_t index, Stream stream);

}  // namespace di::sampling
