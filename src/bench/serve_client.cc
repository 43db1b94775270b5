#include "bench/serve_client.h"

#include <chrono>
#include <thread>
#include <unordered_map>

#include <fmt/format.h>

#include "base/error.h"

namespace di::bench {
namespace {

class Client {
 public:
  Client(engine::Engine& engine, const std::vector<TrafficRequest>& traffic, const ServeLoad& load)
      : engine_(engine), traffic_(traffic), load_(load), last_token_(traffic.size()) {
    run_.requests.resize(traffic.size());
    for (const TrafficRequest& request : traffic)
      tokens_left_ += request.output_tokens;
    trace_at_ = tokens_left_ / 2;
  }

  ServeRun run() {
    const engine::Stats before = engine_.stats();
    engine_.restart_stats();
    start_ = Clock::now();
    while (num_ended_ < traffic_.size()) {
      send_due();
      if (engine_.has_work()) {
        take(engine_.step());
        start_trace();
      } else {
        std::this_thread::sleep_until(start_ + since_start(traffic_[num_sent_].arrival_seconds));
      }
    }
    run_.stats = engine_.stats();
    run_.steps = run_.stats.total_steps - before.total_steps;
    run_.preemptions = run_.stats.total_preempted - before.total_preempted;
    return std::move(run_);
  }

 private:
  using Clock = std::chrono::steady_clock;

  static Clock::duration since_start(double seconds) {
    return std::chrono::ceil<Clock::duration>(std::chrono::duration<double>(seconds));
  }
  double now() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

  bool has_room() const {
    const std::size_t under_way = num_sent_ - num_ended_;
    return load_.concurrency == 0 || under_way < static_cast<std::size_t>(load_.concurrency);
  }

  void send_due() {
    while (num_sent_ < traffic_.size() && has_room()) {
      const double time = now();
      if (traffic_[num_sent_].arrival_seconds > time) return;
      send(num_sent_, time);
      ++num_sent_;
    }
  }

  void send(std::size_t index, double time) {
    const TrafficRequest& what = traffic_[index];
    engine::Request request;
    request.id = fmt::format("{}-{}", load_.id, index);
    request.prompt_token_ids = what.prompt;
    request.sampling.temperature = 0;
    request.sampling.ignore_eos = true;
    request.sampling.max_tokens = what.output_tokens;
    index_of_.emplace(request.id, index);
    run_.requests[index].arrival = load_.concurrency == 0 ? what.arrival_seconds : time;
    run_.requests[index].prompt_tokens = std::ssize(what.prompt);
    if (const auto refusal = engine_.add(std::move(request))) {
      throw Error(
          refusal->code,
          fmt::format("the engine refuses request {} of the traffic: {}", index, refusal->message)
      );
    }
  }

  void take(const std::vector<engine::Output>& outputs) {
    const double time = now();
    for (const engine::Output& output : outputs) {
      const std::size_t index = index_of_.at(output.request_id);
      for (const engine::ChoiceOutput& choice : output.choices)
        take_tokens(index, std::ssize(choice.tokens), time);
      if (output.finished) end(index, time);
    }
  }

  void take_tokens(std::size_t index, int64_t count, double time) {
    ServedRequest& request = run_.requests[index];
    tokens_left_ -= count;
    for (int64_t i = 0; i < count; ++i) {
      if (request.output_tokens++ == 0) {
        request.first_token = time;
      } else {
        run_.gaps.push_back(time - last_token_[index]);
      }
      last_token_[index] = time;
    }
  }

  void end(std::size_t index, double time) {
    ServedRequest& request = run_.requests[index];
    request.end = time;
    request.complete = request.output_tokens == traffic_[index].output_tokens;
    run_.seconds = time - traffic_.front().arrival_seconds;
    ++num_ended_;
  }

  void start_trace() {
    if (load_.trace.empty() || traced_ || tokens_left_ > trace_at_) return;
    engine_.trace(load_.trace, load_.trace_steps);
    traced_ = true;
  }

  engine::Engine& engine_;
  const std::vector<TrafficRequest>& traffic_;
  const ServeLoad& load_;
  std::unordered_map<std::string, std::size_t> index_of_;
  std::vector<double> last_token_;
  std::size_t num_sent_ = 0;
  std::size_t num_ended_ = 0;
  int64_t tokens_left_ = 0;
  int64_t trace_at_ = 0;  // half of the tokens
  bool traced_ = false;
  Clock::time_point start_;
  ServeRun run_;
};

}  // namespace

ServeRun serve(
    engine::Engine& engine, const std::vector<TrafficRequest>& traffic, const ServeLoad& load
) {
  return Client(engine, traffic, load).run();
}

}  // namespace di::bench
