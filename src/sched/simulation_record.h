// Notes what becomes of each request while a simulation runs. Private to the simulations.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "sched/simulation.h"

namespace di::sched {

/// Fills RequestTimes. Steps are numbered from 1.
class SimulationRecord {
 public:
  explicit SimulationRecord(const Traffic& traffic)
      : traffic_(&traffic), notes_(traffic.size()), times_(traffic.size()) {}

  /// The request is there from `step` on.
  void arrived(std::size_t request, int64_t step) {
    notes_[request].arrival_step = step;
    ++num_alive_;
  }

  void prompt_rows(std::size_t request, int64_t step) {
    times_[request].prompt_steps.push_back(step);
  }

  /// A token of the request's first choice came out of `step` at `now`.
  void token(std::size_t request, int64_t step, double now) {
    RequestTimes& times = times_[request];
    Note& note = notes_[request];
    if (times.first_token_steps == 0) {
      times.first_token_steps = step - note.arrival_step + 1;
      times.first_token_seconds = now - (*traffic_)[request].arrival;
    } else {
      times.longest_gap_seconds = std::max(times.longest_gap_seconds, now - note.last_token);
    }
    note.last_token = now;
  }

  void ended(std::size_t request, int64_t step, double now, bool aborted) {
    RequestTimes& times = times_[request];
    times.end_steps = std::max<int64_t>(step - notes_[request].arrival_step + 1, 1);
    times.end_seconds = now - (*traffic_)[request].arrival;
    times.aborted = aborted;
    --num_alive_;
  }

  /// Its end is taken back: its last tokens are to be computed again.
  void reopen(std::size_t request) {
    times_[request].end_steps = 0;
    ++num_alive_;
  }

  int64_t num_alive() const { return num_alive_; }

  bool has_ended(std::size_t request) const { return times_[request].end_steps > 0; }

  std::vector<RequestTimes> take() { return std::move(times_); }

 private:
  struct Note {
    int64_t arrival_step = 0;
    double last_token = 0;
  };
  const Traffic* traffic_;
  std::vector<Note> notes_;
  std::vector<RequestTimes> times_;
  int64_t num_alive_ = 0;
};

}  // namespace di::sched
