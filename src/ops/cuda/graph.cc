#include "ops/cuda/graph.h"

#include "ops/cuda/launch.h"
#include "ops/cuda/waits.h"

namespace di::ops::cuda {
namespace {

std::shared_ptr<CUgraph_st> captured(cudaStream_t stream, const std::function<void()>& enqueue) {
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "recording a step");
  cudaGraph_t graph = nullptr;
  try {
    enqueue();
  } catch (...) {
    cudaStreamEndCapture(stream, &graph);
    cudaGraphDestroy(graph);
    throw;
  }
  check(cudaStreamEndCapture(stream, &graph), "recording a step");
  return {graph, [](cudaGraph_t g) { cudaGraphDestroy(g); }};
}

}  // namespace

Graph::Graph(cudaGraphExec_t executable)
    : executable_(executable, [](cudaGraphExec_t graph) { cudaGraphExecDestroy(graph); }) {}

Graph Graph::record(cudaStream_t stream, const std::function<void()>& enqueue) {
  const auto graph = captured(stream, enqueue);
  cudaGraphExec_t executable = nullptr;
  check(cudaGraphInstantiate(&executable, graph.get(), 0), "cudaGraphInstantiate");
  return Graph(executable);
}

void Graph::rehearse(cudaStream_t stream, const std::function<void()>& enqueue) {
  captured(stream, enqueue);
}

void Graph::upload(cudaStream_t stream) const {
  check(cudaGraphUpload(executable_.get(), stream), "cudaGraphUpload");
}

void Graph::play(cudaStream_t stream) const {
  check(cudaGraphLaunch(executable_.get(), stream), "cudaGraphLaunch");
}

Event::Event() {
  cudaEvent_t event = nullptr;
  check(cudaEventCreate(&event), "cudaEventCreate");
  event_ = {event, [](cudaEvent_t e) { cudaEventDestroy(e); }};
}

void Event::record(cudaStream_t stream) {
  check(cudaEventRecord(event_.get(), stream), "cudaEventRecord");
}

bool Event::done() const {
  return cudaEventQuery(event_.get()) != cudaErrorNotReady;
}

void Event::wait() const {
  note_wait();
  check(cudaEventSynchronize(event_.get()), "a step on the device");
}

double Event::seconds_since(const Event& start) const {
  float milliseconds = 0;
  check(
      cudaEventElapsedTime(&milliseconds, start.event_.get(), event_.get()), "cudaEventElapsedTime"
  );
  return milliseconds * 1e-3;
}

}  // namespace di::ops::cuda
