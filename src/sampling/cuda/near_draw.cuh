// Draws by the tokens near the best one, which nearly always are enough. Their masses are exact;
// that of all others is added up quickly, in fp32, with a bound of its error. If both ends of what
// it may be give the same token, so would exact sums.
#pragma once

#include "sampling/cuda/mailbox.cuh"
#include "sampling/cuda/ranked.cuh"

namespace di::sampling::cuda {

/// How far the near tokens reach, one try after another.
inline constexpr int kNearTries = 3;
__device__ constexpr double kNearDistances[kNearTries] = {8, 12, 18};

/// The mass that top_p asks for out of `kept`.
__device__ inline uint64_t share_mark(double share, uint64_t kept) {
  const auto mark = static_cast<uint64_t>(ceil(share * static_cast<double>(kept)));
  return mark < kept ? mark : kept;
}

/// The mass at which the token lies that `share` draws.
__device__ inline uint64_t drawn_mark(double share, uint64_t kept) {
  const auto below = static_cast<uint64_t>(share * static_cast<double>(kept));
  return (below < kept - 1 ? below : kept - 1) + 1;
}

/// One of the near tokens, in the hands of one thread.
struct NearToken {
  int32_t token = -1;
  int before = 0;         ///< tokens that rank before it
  uint64_t own_mass = 0;  ///< 0: there is none
  uint64_t mass = 0;      ///< up to it, it included

  /// Whether this is the place of a mark, if it is among these tokens.
  __device__ bool reaches(const Mark& mark) const {
    if (own_mass == 0) return false;
    if (mark.is_count) return before + 1 == static_cast<int64_t>(mark.value);
    return mass >= mark.value && mass - own_mass < mark.value;
  }
};

/// Shared memory of each CTA, beside that of the ranking.
struct NearMemory {
  Mailbox<uint64_t> sums[kNearTries];
  Mailbox<uint64_t, 1> verdicts[kNearTries];
  Arrival arrived[kNearTries];  ///< of near tokens, in the first CTA
  NearToken found;              ///< the place of a mark
  int listed;

  /// As Mailbox::prepare(), for one of the tries.
  __device__ void prepare(int i) {
    sums[i].prepare();
    verdicts[i].prepare();
    arrived[i].prepare();
  }
};

/// One draw, by all threads of the cluster together.
class NearDraw {
 public:
  __device__ NearDraw(const RowPart& part, Ranking& ranking, NearMemory& memory)
      : part_(part), ranking_(ranking), memory_(memory) {}

  /// The token that `share` draws, in the first CTA; 0 in the others; and −1 in all of them when
  /// the near tokens do not tell.
  __device__ int32_t run(const Scale& scale, double share) {
    constexpr double kLog2OfE = 0x1.71547652b82fep0;
    const double factor = scale.inverse_temperature * kLog2OfE;
    const double steepness = fabs(scale.top) * factor;
    if (!(factor > 1e-6 && factor < 1e4 && steepness < 1e5)) return -1;
    for (int i = 0; i < kNearTries; ++i) {
      const double reach = kNearDistances[i] / scale.inverse_temperature;
      const float cut = fmaxf(static_cast<float>(scale.top - reach), -3e38f);
      const auto offset = static_cast<float>(-scale.top * factor);
      const Near near = list_near(cut, static_cast<float>(factor), offset, i);
      if (!near.fit) return -1;
      if (!ranking_.is_first_cta()) {
        memory_.verdicts[i].await();
        if (memory_.verdicts[i].letters[0] != 0) return 0;
        continue;
      }
      const Range others = mass_of_others(near.others, steepness);
      const int32_t token = token_of(near, scale, cut, share, others);
      __syncthreads();  // other CTAs write where this one has read
      if (threadIdx.x > 0 && threadIdx.x < kCtas) {
        const auto verdict = static_cast<uint64_t>(token < 0 ? 0 : 1);
        memory_.verdicts[i].send_to(static_cast<int>(threadIdx.x), 0, verdict);
      }
      if (token >= 0) return token;
    }
    return -1;
  }

 private:
  /// What all CTAs know of the near tokens and the others.
  struct Near {
    int counts[kCtas];
    int total = 0;
    bool fit = true;    ///< all of them are listed
    double others = 0;  ///< Σ of the others' exponentials, about
  };

  /// A number between two.
  struct Range {
    uint64_t low;
    uint64_t high;
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
      near.total += near.counts[cta];
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

  /// The drawn token, or −1; first CTA alone.
  __device__ int32_t
  token_of(const Near& near, const Scale& scale, float cut, double share, const Range& others) {
    const auto floor = static_cast<uint64_t>(ceil(part_.params->min_p * kUnitMass));
    const bool holds_floor = scale.mass(cut) < floor;
    BlockScratch& scratch = ranking_.memory().scratch;
    if (near.total <= kThreads) {
      const NearToken own = share_near(near, scale);
      const auto find = [&](const Mark& mark) { return find_shared(own, mark); };
      const uint64_t above = block_sum(own.own_mass >= floor ? own.own_mass : 0, scratch);
      const Range above_floor{above, holds_floor ? above : above + others.high};
      return token_at(near.total, share, others, above_floor, find);
    }
    if (near.total > kFew) return -1;
    ranking_.sort_near(near.counts, scale);
    const RankingMemory& memory = ranking_.memory();
    const auto find = [&](const Mark& mark) {
      const int at = ranking_.first_reaching(near.total, 0, mark);
      return NearToken{.token = memory.list.tokens[at], .mass = memory.sums[at]};
    };
    uint64_t above = 0;
    for (int at = static_cast<int>(threadIdx.x); at < near.total; at += kThreads) {
      const uint64_t mass = memory.sums[at] - (at > 0 ? memory.sums[at - 1] : 0);
      above += mass >= floor ? mass : 0;
    }
    above = block_sum(above, scratch);
    const Range above_floor{above, holds_floor ? above : above + others.high};
    return token_at(near.total, share, others, above_floor, find);
  }

  /// The same among `total` tokens, of which find(mark) gives the place of a mark. Every cut makes
  /// a range of what may be kept.
  template <class Find>
  __device__ int32_t token_at(
      int total, double share, const Range& others, const Range& above_floor, const Find& find
  ) const {
    const SlotParams& params = *part_.params;
    const uint64_t near_mass = find(Mark{true, static_cast<uint64_t>(total)}).mass;
    Range kept{near_mass + others.low, near_mass + others.high};
    if (params.top_k > total) kept.low = near_mass;
    if (params.top_k > 0 && params.top_k <= total) {
      kept.low = kept.high = find(Mark{true, static_cast<uint64_t>(params.top_k)}).mass;
    }
    if (params.top_p < 1) {
      const uint64_t low = share_mark(params.top_p, kept.low);
      const uint64_t high = share_mark(params.top_p, kept.high);
      kept.low = low <= near_mass ? find(Mark{.value = low}).mass : low;
      if (high <= near_mass) kept.high = find(Mark{.value = high}).mass;
    }
    if (params.min_p > 0) {
      kept = {min(kept.low, above_floor.low), min(kept.high, above_floor.high)};
    }
    const uint64_t low = drawn_mark(share, kept.low);
    const uint64_t high = drawn_mark(share, kept.high);
    if (high > near_mass) return -1;
    const int32_t token = find(Mark{.value = low}).token;
    return low == high || find(Mark{.value = high}).token == token ? token : -1;
  }

  /// Gives each thread one of the near tokens, kThreads at most; first CTA alone.
  __device__ NearToken share_near(const Near& near, const Scale& scale) {
    RankingMemory& memory = ranking_.memory();
    const auto own = static_cast<int>(threadIdx.x);
    NearToken result;
    uint64_t rank = 0;
    int first = 0;
#pragma unroll
    for (int cta = 0; cta < kCtas; ++cta) {
      if (own >= first && own < first + near.counts[cta]) {
        rank = memory.near.ranks[cta][own - first];
        result.token = memory.near.tokens[cta][own - first];
      }
      first += near.counts[cta];
    }
    if (own < near.total) result.own_mass = scale.mass(logit_of(rank));
    // Not where masses lie otherwise: there others may be reading near tokens still.
    uint64_t* const masses = memory.list.ranks + kThreads;
    memory.list.ranks[own] = rank;
    memory.list.tokens[own] = result.token;
    masses[own] = result.own_mass;
    __syncthreads();
    if (own / 32 * 32 >= near.total) return result;
    result.mass = result.own_mass;
#pragma unroll 4
    for (int i = 0; i < near.total; ++i) {
      const bool is_first =
          is_before(memory.list.ranks[i], memory.list.tokens[i], rank, result.token);
      result.before += is_first ? 1 : 0;
      result.mass += is_first ? masses[i] : 0;
    }
    return result;
  }

  /// The place of a mark among tokens of which each thread has one.
  __device__ NearToken find_shared(const NearToken& own, const Mark& mark) const {
    __syncthreads();
    if (own.reaches(mark)) memory_.found = own;
    __syncthreads();
    return memory_.found;
  }

  const RowPart& part_;
  Ranking& ranking_;
  NearMemory& memory_;
};

}  // namespace di::sampling::cuda
