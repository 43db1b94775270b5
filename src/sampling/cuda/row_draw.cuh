// The draw of a row: by the near tokens when they are enough, else by exact sums. The same code
// scores a given token.
#pragma once

#include "sampling/cuda/row_work.cuh"

namespace di::sampling::cuda {

/// Tokens that a draw leaves out, and the mass of all others that the cuts keep.
struct LeftOut {
  const int32_t* tokens = nullptr;
  int count = 0;
  uint64_t others = 0;
};

class RowDraw {
 public:
  /// `left_out` stays where it is.
  __device__ RowDraw(RowWork& row, const LeftOut& left_out) : row_(row), left_out_(left_out) {}

  /// `tell` as of RowWork::load(). A row that only a temperature and cuts change is drawn here, in
  /// code that is short, as each warp runs it once; all others elsewhere.
  template <class Tell>
  __device__ void run(const Tell& tell) {
    const Best best = row_.load(tell);
    const Task& task = row_.task;
    const SlotParams& params = row_.memory.params;
    const bool is_simple = best.is_usable() && task.token < 0 && !task.reports_model &&
                           !task.reports_processed && params.temperature != 0 &&
                           !has_edits(params, task.num_outputs);
    if (is_simple && draw_by_near(row_.scale_of(best))) return;
    go_on(row_.args, row_.memory, row_.part, best, left_out_, is_simple);
  }

  /// For temperature 0, or when nothing can be drawn beside a forced token.
  __device__ void take_best(const Best& best) {
    const Task& task = row_.task;
    const int32_t token = task.token < 0 ? best.token : task.token;
    const auto logprob = [&](double, int32_t other) {
      return best.is_usable() && other == best.token ? 0.0 : kLogprobFloor;
    };
    if (task.reports_processed) row_.report_best({best.logit, 1}, logprob);
    row_.finish(token, task.reports_processed ? RowWork::as_reported(logprob(0, token)) : 0.0f);
  }

  /// Reports by the law of the row, and draws the token unless it is given. Returns what the cuts
  /// leave.
  __device__ Kept report_and_draw(const Scale& scale, const PartSums& sums) {
    const Kept kept = row_.keep(scale, sums, true);
    const double log_mass = log(static_cast<double>(kept.mass) / kUnitMass);
    const auto logprob = [&](double logit, int32_t token) {
      if (!kept.holds(rank_of(logit), token)) return kLogprobFloor;
      return -scale.distance(logit) - log_mass;
    };
    row_.report_best(scale, logprob);
    int32_t token = row_.task.token;
    double logit = 0;
    if (token < 0) {
      const Place place = find_drawn(scale, kept.mass);
      token = place.token;
      logit = logit_of(place.rank);
    } else {
      logit = row_.logit_of_token(token);
    }
    row_.finish(token, RowWork::as_reported(logprob(logit, token)));
    return kept;
  }

 private:
  /// As run() behind the best token; `is_tried`: the near tokens are not enough.
  __device__ __noinline__ static void go_on(
      const Args& args, Memory& memory, RowPart part, Best best, LeftOut left_out, bool is_tried
  ) {
    RowWork row(args, memory, part);
    RowDraw(row, left_out).run_behind(best, is_tried);
  }

  __device__ void run_behind(Best best, bool is_tried) {
    if (!best.is_usable()) return row_.finish(-1, 0);
    const Task& task = row_.task;
    if (task.reports_model) row_.report_model(best.logit);
    const SlotParams& params = row_.memory.params;
    const bool is_open =
        task.token < 0 && (params.temperature != 0 || has_edits(params, task.num_outputs));
    if (!task.reports_processed && !is_open)
      return row_.finish(task.token < 0 ? best.token : task.token, 0);
    best = row_.edit(best);
    if (task.token < 0 && !best.is_usable()) return row_.finish(-1, 0);
    if (!best.is_usable() || params.temperature == 0) return take_best(best);
    const Scale scale = row_.scale_of(best);
    if (task.reports_processed) {
      report_and_draw(scale, row_.add_masses(scale));
    } else if (is_tried || !draw_by_near(scale)) {
      draw_by_all(scale);
    }
  }

  /// False when the near tokens are not enough.
  __device__ bool draw_by_near(const Scale& scale) {
    const SlotParams& params = row_.memory.params;
    int32_t token = -1;
    leave_out();
    const auto decide = [&](NearList& near, const Range& others, float cut) {
      Range kept{left_out_.others, left_out_.others};
      if (left_out_.count == 0) {
        Range above_floor;
        if (params.min_p > 0) above_floor = mass_above_floor(near, params, scale, cut, others);
        kept = kept_range(near, params, others, above_floor);
      }
      token = drawn_token(near, row_.task.share, kept);
      return token >= 0;
    };
    if (!row_.near.run(scale, false, decide)) return false;
    row_.finish(token, 0);
    return true;
  }

  __device__ void draw_by_all(const Scale& scale) {
    uint64_t mass = left_out_.others;
    if (left_out_.count == 0) mass = row_.keep(scale, row_.add_masses(scale), false).mass;
    row_.finish(row_.ranking.find(scale, {false, drawn_mark(row_.task.share, mass)}).token, 0);
  }

  /// The place that the row's number draws of `kept`, or of the others when tokens are left out.
  __device__ Place find_drawn(const Scale& scale, uint64_t kept) {
    leave_out();
    if (left_out_.count > 0) kept = left_out_.others;
    return row_.ranking.find(scale, {false, drawn_mark(row_.task.share, kept)});
  }

  __device__ void leave_out() {
    if (left_out_.count == 0) return;
    __syncthreads();
    row_.part.leave_out({left_out_.tokens, left_out_.count});
    __syncthreads();
  }

  RowWork& row_;
  const LeftOut& left_out_;
};

}  // namespace di::sampling::cuda
