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

  __device__ static float exp2_of(float x) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
  }

  /// Sends the tokens from logit `cut` on to the first CTA, and sums to all. The exponential of a
  /// logit is exp2(logit · factor + offset).
  __device__ Near list_near(float cut, float factor, float offset, int i) {
    const uint64_t own = add_others(cut, factor, offset, memory_.arrived[i]);
    Mailbox<uint64_t>& sums = memory_.sums[i];
    if (threadIdx.x < kCtas) sums.send_to(static_cast<int>(threadIdx.x), ranking_.cta(), own);
    sums.await();
    Near near;
    int sent = 0;
#pragma unroll
    for (int cta = 0; cta < kCtas; ++cta) {
      const uint64_t letter = sums.letters[cta];
      near.counts[cta] = static_cast<int>(letter & 0xffffffffu);
      near.others += static_cast<double>(__uint_as_float(static_cast<uint32_t>(letter >> 32)));
      near.fit = near.fit && near.counts[cta] <= kNear;
      sent += min(near.counts[cta], kNear);
    }
    if (ranking_.is_first_cta()) {
      constexpr int kBytes = sizeof(uint64_t) + sizeof(int32_t);
      if (threadIdx.x == 0) memory_.arrived[i].expect(static_cast<uint32_t>(sent * kBytes));
      memory_.arrived[i].await();
    }
    return near;
  }

  /// This CTA's Σ over the others, in fp32, above its count of near tokens.
  __device__ uint64_t add_others(float cut, float factor, float offset, const Arrival& arrival) {
    const RowPart part = part_;
    uint32_t near = 0;  // a bit for each of this thread's fours that holds near tokens
    float sum = 0;
    const auto look = [&](int four, float a, float b, float c, float d) {
      const auto power = [&](float logit) {
        return logit < cut ? exp2_of(fmaf(logit, factor, offset)) : 0;
      };
      near |= (fmaxf(fmaxf(a, b), fmaxf(c, d)) < cut ? 0u : 1u) << four;
      sum += (power(a) + power(b)) + (power(c) + power(d));
    };
    __syncthreads();
    if (threadIdx.x == 0) memory_.listed = 0;
    const int own = 4 * static_cast<int>(threadIdx.x);
    if (part.is_penalised || part.is_biased) {
#pragma unroll 1
      for (int four = 0; own + four * 4 * kThreads < part.size; ++four) {
        double x[4];
        part.four_logits(own + four * 4 * kThreads, x);
        look(
            four,
            static_cast<float>(x[0]),
            static_cast<float>(x[1]),
            static_cast<float>(x[2]),
            static_cast<float>(x[3])
        );
      }
    } else {
#pragma unroll 4
      for (int four = 0; own + four * 4 * kThreads < part.size; ++four) {
        const float4 x = part.four_as_given(own + four * 4 * kThreads);
        look(four, x.x, x.y, x.z, x.w);
      }
    }
    __syncthreads();
    for (; near != 0; near &= near - 1) {
      const int four = __ffs(static_cast<int>(near)) - 1;
      send_near(own + four * 4 * kThreads, cut, arrival);
    }
    const double all = block_sum(static_cast<double>(sum), ranking_.memory().scratch);
    const uint64_t bits = __float_as_uint(static_cast<float>(all));
    return bits << 32 | static_cast<uint32_t>(memory_.listed);
  }

  /// Sends those of four neighbours that are near.
  __device__ void send_near(int first, float cut, const Arrival& arrival) {
    NearTokens& near = ranking_.memory().near;
    const int cta = ranking_.cta();
    for (int i = first; i < min(first + 4, part_.size); ++i) {
      const double logit = part_.logit(i);
      if (static_cast<float>(logit) < cut) continue;
      const int place = add_to_shared(&memory_.listed, 1);
      if (place >= kNear) continue;
      send(0, &near.ranks[cta][place], rank_of(logit), arrival);
      send(0, &near.tokens[cta][place], static_cast<int32_t>(part_.begin + i), arrival);
    }
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
