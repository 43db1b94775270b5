// The tokens near a row's best one, with exact masses, and what all others weigh, added up quickly
// in fp32 with a bound of its error. Nearly always that is enough to draw by (cuts.cuh).
#pragma once

#include "sampling/cuda/near_list.cuh"

namespace di::sampling::cuda {

/// How far the near tokens reach, one try after another. The first holds all that may be drafted
/// (kLeastDraftMass).
__device__ constexpr double kNearDistances[kNearTries] = {8, 12, 18};

/// Lists near tokens until they are enough; once for a row, by all threads of the cluster together.
class NearSearch {
 public:
  __device__ NearSearch(const RowPart& part, Ranking& ranking, NearMemory& memory)
      : part_(part), ranking_(ranking), memory_(memory) {}

  /// Calls decide(list, others, cut) in the first CTA, with ever more tokens: all from logit `cut`
  /// on; what the masses of all others sum up to is in the range. True in every CTA as soon as that
  /// returns true; false when it never does, or too many tokens are near.
  template <class Decide>
  __device__ bool run(const Scale& scale, bool sorts, const Decide& decide) {
    constexpr double kLog2OfE = 0x1.71547652b82fep0;
    const double factor = scale.inverse_temperature * kLog2OfE;
    const double steepness = fabs(scale.top) * factor;
    if (!(factor > 1e-6 && factor < 1e4 && steepness < 1e5)) return false;
    for (int i = 0; i < kNearTries; ++i) {
      const double reach = kNearDistances[i] / scale.inverse_temperature;
      const float cut = fmaxf(static_cast<float>(scale.top - reach), -3e38f);
      const auto offset = static_cast<float>(-scale.top * factor);
      const Near near = list_near(cut, static_cast<float>(factor), offset, i);
      if (!near.fit) return false;
      if (!ranking_.is_first_cta()) {
        memory_.verdicts[i].await();
        if (memory_.verdicts[i].letters[0] != 0) return true;
        continue;
      }
      NearList list(near.counts, ranking_.memory(), memory_, scale, sorts);
      const Range others = mass_of_others(near.others, steepness);
      const bool is_decided = list.is_usable() && decide(list, others, cut);
      __syncthreads();  // other CTAs write where this one has read
      if (threadIdx.x > 0 && threadIdx.x < kCtas) {
        const uint64_t verdict = is_decided ? 1 : 0;
        memory_.verdicts[i].send_to(static_cast<int>(threadIdx.x), 0, verdict);
      }
      if (is_decided) return true;
    }
    return false;
  }

 private:
  /// What all CTAs know of the near tokens and the others.
  struct Near {
    int counts[kCtas];
    bool fit = true;    ///< all of them are listed
    double others = 0;  ///< Σ of the others' exponentials, about
  };

  /// Four neighbours; −∞ where there is none.
  struct Four {
    double logits[4];
  };

  __device__ static float exp2_of(float x) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
  }

  /// Sends the tokens from logit `cut` on to the first CTA, and sums to all. The exponential of a
  /// logit is exp2(logit · factor + offset).
  __device__ Near list_near(float cut, float factor, float offset, int i) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    auto& sums = memory_.sums[i];
    const uint64_t own = add_others(cut, factor, offset, i);
    if (lane < kCtas) sums.send_to(lane, ranking_.cta() * kWarps + warp, own);
    sums.await();
    const Near near = add_up(sums.letters);
    if (ranking_.is_first_cta()) {
      constexpr int kBytes = sizeof(uint64_t) + sizeof(int32_t);
      int sent = 0;
#pragma unroll
      for (const int count : near.counts)
        sent += min(count, kNear);
      if (threadIdx.x == 0) memory_.arrived[i].expect(static_cast<uint32_t>(sent * kBytes));
      memory_.arrived[i].await();
    }
    return near;
  }

  /// A lane adds up the letters of two warps, of one CTA each.
  __device__ static Near add_up(const uint64_t (&letters)[kCtas * kWarps]) {
    static_assert(kCtas * kWarps == 64 && kWarps == 8);
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const auto count_of = [](uint64_t letter) { return static_cast<int>(letter & 0xffffffffu); };
    const auto sum_of = [](uint64_t letter) {
      return static_cast<double>(__uint_as_float(static_cast<uint32_t>(letter >> 32)));
    };
    int low = count_of(letters[lane]);
    int high = count_of(letters[lane + 32]);
    double others = sum_of(letters[lane]) + sum_of(letters[lane + 32]);
#pragma unroll
    for (int distance = 1; distance < kWarps; distance *= 2) {
      low += __shfl_xor_sync(kAllLanes, low, distance);
      high += __shfl_xor_sync(kAllLanes, high, distance);
    }
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2)
      others += __shfl_xor_sync(kAllLanes, others, distance);
    Near near{.others = others};
#pragma unroll
    for (int cta = 0; cta < kCtas; ++cta) {
      near.counts[cta] = __shfl_sync(kAllLanes, cta < kCtas / 2 ? low : high, cta * kWarps % 32);
      near.fit = near.fit && near.counts[cta] <= kNear;
    }
    return near;
  }

  /// This warp's Σ over the others, in fp32, above its count of near tokens, which it sends.
  __device__ uint64_t add_others(float cut, float factor, float offset, int i) {
    const RowPart part = part_;
    int near = 0;
    float sum = 0;
    const auto power = [&](float logit) {
      return logit < cut ? exp2_of(fmaf(logit, factor, offset)) : 0;
    };
    NearTokens& tokens = ranking_.memory().near;
    const auto look = [&](int first, const float4& x, const Four& logits) {
      sum += (power(x.x) + power(x.y)) + (power(x.z) + power(x.w));
      if (fmaxf(fmaxf(x.x, x.y), fmaxf(x.z, x.w)) < cut) return;
      near += send_near(logits, part.begin + first, cut, tokens, memory_, ranking_.cta(), i);
    };
    const int own = 4 * static_cast<int>(threadIdx.x);
    if (part.is_penalised || part.is_biased) {
#pragma unroll 1
      for (int first = own; first < part.size; first += 4 * kThreads) {
        Four x;
        part.four_logits(first, x.logits);
        const auto as_float = [&](int k) { return static_cast<float>(x.logits[k]); };
        look(first, {as_float(0), as_float(1), as_float(2), as_float(3)}, x);
      }
    } else {
#pragma unroll 4
      for (int first = own; first < part.size; first += 4 * kThreads) {
        const float4 x = part.four_as_given(first);
        look(first, x, {x.x, x.y, x.z, x.w});
      }
    }
    near = __reduce_add_sync(kAllLanes, near);
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
      sum += __shfl_xor_sync(kAllLanes, sum, distance);
    return uint64_t{__float_as_uint(sum)} << 32 | static_cast<uint32_t>(near);
  }

  /// Sends those of four neighbours from `token` on that are near; returns how many.
  __device__ __noinline__ static int send_near(
      Four four, int32_t token, float cut, NearTokens& tokens, NearMemory& memory, int cta, int i
  ) {
    int count = 0;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      if (static_cast<float>(four.logits[k]) < cut) continue;
      ++count;
      const int place = add_to_shared(&memory.listed[i], 1);
      if (place >= kNear) continue;
      send(0, &tokens.ranks[cta][place], rank_of(four.logits[k]), memory.arrived[i]);
      send(0, &tokens.tokens[cta][place], token + k, memory.arrived[i]);
    }
    return count;
  }

  /// What the mass of all others may be. Arguments of exp2 are off by 2⁻²³ of what went into them,
  /// exp2 itself by 2⁻²², the sums by 2⁻¹⁶; the bound is twice that. Each of up to 2¹⁸ tokens has a
  /// mass that was rounded.
  __device__ static Range mass_of_others(double exponentials, double steepness) {
    const double error = (steepness + 64) * 0x1p-22 + 0x1p-15;
    const double mass = exponentials * kUnitMass;
    return {
        static_cast<uint64_t>(fmax(mass * (1 - error) - 0x1p18, 0.0)),
        static_cast<uint64_t>(mass * (1 + error) + 0x1p18)};
  }

  const RowPart& part_;
  Ranking& ranking_;
  NearMemory& memory_;
};

}  // namespace di::sampling::cuda
