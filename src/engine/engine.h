// Engine: many requests, one model. This header is what every front is written against: the
// program, the Python package, the thread of service.h.
//
// The six verbs: open, add, abort, step, flush, stats; the destructor closes. A front adds
// requests, calls step() while has_work(), and gets the news of each step as owned values.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/trace.h"
#include "checkpoint/loader.h"
#include "engine/admission.h"
#include "engine/options.h"
#include "engine/request.h"
#include "engine/stats.h"
#include "model/memory_plan.h"
#include "sched/draft_costs.h"
#include "text/tokenizer.h"

namespace di::engine {

class Device;
struct DeviceParts;

/// Builds the device that an engine runs its steps on.
using MakeDevice = std::function<std::unique_ptr<Device>(const DeviceParts&)>;

/// Serves requests on one model. A request's text and logprobs depend on the request alone, bit for
/// bit: not on what else runs, on chunking, preemption, threads, nor on async_scheduling.
///
/// Thread: one at a time, except where a function says otherwise.
class Engine {
 public:
  /// Checks the options, the model and the memory it will need within a second or two; then loads.
  /// Throws Error for what is wrong; nothing is left behind then. `custom_device`: for tests and
  /// benchmarks that put something else in the place of the backend.
  static std::unique_ptr<Engine> open(
      const EngineOptions& options,
      const checkpoint::LoadProgress& progress = {},
      const MakeDevice& custom_device = {}
  );

  /// Drops what still runs, without outputs. Waits for steps in flight.
  ~Engine();
  Engine(const Engine&) = delete;

  /// Takes a request, or says why not. A taken request gets exactly one finished output.
  [[nodiscard]] std::optional<Refusal> add(Request request);

  /// Ends a request now, whatever its state; its finished output comes with the next step() or
  /// flush(). False when no such request runs.
  bool abort(const std::string& request_id);

  /// Plans and starts the next step, and returns the news: of the step before it when scheduling is
  /// asynchronous, of itself otherwise. Waits for a step to finish when there is nothing to start.
  std::vector<Output> step();

  /// Waits for the steps in flight and returns their news. Requests go on at the next step().
  std::vector<Output> flush();

  /// True while a request runs or waits, or there is news to fetch.
  bool has_work() const;

  /// What happened lately, and in all. See docs/metrics.md.
  Stats stats() const;

  /// What steps cost, as adaptive drafts have learnt it; nothing in another mode.
  std::optional<sched::CostTable> draft_costs() const;

  /// Begins the window of stats() anew; what is counted since the start goes on.
  void restart_stats();

  /// Records the next `num_steps` steps: phases on each thread, ops and rows. The trace is written
  /// to `path` as Chrome-trace JSON when they are done or the engine ends. Throws Error when `path`
  /// can not be written or a trace is being taken.
  void trace(const std::string& path, int64_t num_steps);

  /// What the engine holds, fixed since it is open. Any thread.
  const EngineOptions& options() const;
  const ModelConfig& config() const;
  const text::Tokenizer& tokenizer() const;
  const ops::OpTable& ops() const;
  const std::string& model_folder() const;
  const model::MemoryPlan& memory_plan() const;
  /// Bytes of the backend's memory that went since the plan was made, to whomever.
  int64_t memory_taken() const;
  const AdmissionLimits& admission_limits() const;  ///< for check_request() before add()
  int64_t context() const;
  int64_t num_blocks() const;

 private:
  struct State;
  explicit Engine(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace di::engine
