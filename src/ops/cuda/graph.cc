#include "ops/cuda/graph.h"

#include "ops/cuda/launch.h"

namespace di::ops::cuda {

Graph::Graph(cudaGraphExec_t executable)
    : executable_(executable, [](cudaGraphExec_t graph) { cudaGraphExecDestroy(graph); }) {}

Graph Graph::record(cudaStream_t stream, const std::function<void()>& enqueue) {
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
  cudaGraphExec_t executable = nullptr;
  const cudaError_t code = cudaGraphInstantiate(&executable, graph, 0);
  cudaGraphDestroy(graph);
  check(code, "cudaGraphInstantiate");
  return Graph(executable);
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
