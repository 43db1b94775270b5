#include "ops/cuda/kernel_trace.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <unordered_map>
#include <utility>

#if __has_include(<cupti.h>)

#include <cupti.h>
#include <dlfcn.h>

namespace di::ops::cuda {
namespace {

constexpr CUpti_ActivityKind kKinds[] = {
    CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
    CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION,
    CUPTI_ACTIVITY_KIND_RUNTIME};  // external ids are told for calls that are watched

/// The functions of CUPTI that are used.
struct Cupti {
  decltype(&cuptiActivityEnable) enable;
  decltype(&cuptiActivityDisable) disable;
  decltype(&cuptiActivityRegisterCallbacks) register_callbacks;
  decltype(&cuptiActivityRegisterTimestampCallback) register_clock;
  decltype(&cuptiActivityGetNextRecord) next_record;
  decltype(&cuptiActivityFlushAll) flush;
  decltype(&cuptiActivityPushExternalCorrelationId) push_id;
  decltype(&cuptiActivityPopExternalCorrelationId) pop_id;
  decltype(&cuptiGetResultString) text_of;
};

/// What CUPTI told so far. Its own threads tell it.
struct Told {
  std::mutex mutex;
  std::vector<KernelSpan> kernels;
  std::vector<uint32_t> calls;                    // beside kernels: which call launched each
  std::unordered_map<uint32_t, int64_t> step_of;  // by call
  std::unordered_map<const char*, std::string> names;
};

Told& told() {
  static auto& all = *new Told;  // CUPTI's threads may outlive the program's end
  return all;
}

std::atomic<bool> is_taken{false};  // CUPTI has one listener
Cupti cupti{};

void* open_library() {
  const std::string name = "libcupti.so." + std::to_string(CUPTI_API_VERSION / 10000);
  for (const char* folder : {"", "/usr/local/cuda/lib64/", "/usr/local/cuda/extras/CUPTI/lib64/"}) {
    if (void* library = dlopen((folder + name).c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
  }
  return nullptr;
}

template <class Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

bool find_all(void* library) {
  return find(library, "cuptiActivityEnable", cupti.enable) &&
         find(library, "cuptiActivityDisable", cupti.disable) &&
         find(library, "cuptiActivityRegisterCallbacks", cupti.register_callbacks) &&
         find(library, "cuptiActivityRegisterTimestampCallback", cupti.register_clock) &&
         find(library, "cuptiActivityGetNextRecord", cupti.next_record) &&
         find(library, "cuptiActivityFlushAll", cupti.flush) &&
         find(library, "cuptiActivityPushExternalCorrelationId", cupti.push_id) &&
         find(library, "cuptiActivityPopExternalCorrelationId", cupti.pop_id) &&
         find(library, "cuptiGetResultString", cupti.text_of);
}

uint64_t nanoseconds_now() {
  using std::chrono::nanoseconds;
  const auto now = TraceClock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<nanoseconds>(now).count());
}

TraceClock::time_point time_of(uint64_t nanoseconds) {
  const std::chrono::nanoseconds since(static_cast<int64_t>(nanoseconds));
  return TraceClock::time_point(std::chrono::duration_cast<TraceClock::duration>(since));
}

void CUPTIAPI give_buffer(uint8_t** buffer, std::size_t* bytes, std::size_t* most_records) {
  constexpr std::size_t kBytes = std::size_t{1} << 20;
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(8, kBytes));
  *bytes = *buffer == nullptr ? 0 : kBytes;
  *most_records = 0;  // as many as there is room for
}

void keep(const CUpti_ActivityKernel9& kernel, Told& all) {
  if (kernel.end == 0 || kernel.name == nullptr) return;  // not done
  std::string& name = all.names[kernel.name];
  if (name.empty()) name = kernel_name(kernel.name);
  all.kernels.push_back(
      {.name = name,
       .start = time_of(kernel.start),
       .end = time_of(kernel.end),
       .blocks = int64_t{kernel.gridX} * kernel.gridY * kernel.gridZ,
       .threads = int64_t{kernel.blockX} * kernel.blockY * kernel.blockZ}
  );
  all.calls.push_back(kernel.correlationId);
}

void keep(const CUpti_ActivityExternalCorrelation& call, Told& all) {
  all.step_of[call.correlationId] = static_cast<int64_t>(call.externalId);
}

void CUPTIAPI read_buffer(
    CUcontext, uint32_t, uint8_t* buffer, [[maybe_unused]] std::size_t bytes, std::size_t valid
) {
  Told& all = told();
  const std::lock_guard lock(all.mutex);
  CUpti_Activity* record = nullptr;
  while (cupti.next_record(buffer, valid, &record) == CUPTI_SUCCESS) {
    if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL)
      keep(*reinterpret_cast<const CUpti_ActivityKernel9*>(record), all);
    if (record->kind == CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION)
      keep(*reinterpret_cast<const CUpti_ActivityExternalCorrelation*>(record), all);
  }
  std::free(buffer);
}

/// Empty, or what keeps CUPTI from being used.
std::string load_cupti() {
  void* library = open_library();
  if (library == nullptr) {
    return "libcupti.so." + std::to_string(CUPTI_API_VERSION / 10000) +
           " of the CUDA toolkit, or of PyPI's nvidia-cuda-cupti, is not on the library path";
  }
  if (!find_all(library)) return "libcupti is too old";
  cupti.register_clock(nanoseconds_now);
  cupti.register_callbacks(give_buffer, read_buffer);
  return {};
}

std::string switch_on() {
  static const std::string problem = load_cupti();
  if (!problem.empty()) return problem;
  for (const CUpti_ActivityKind kind : kKinds) {
    const CUptiResult result = cupti.enable(kind);
    if (result == CUPTI_SUCCESS) continue;
    const char* text = "it failed";
    cupti.text_of(result, &text);
    return std::string("CUPTI cannot watch them: ") + text;
  }
  return {};
}

void switch_off() {
  for (const CUpti_ActivityKind kind : kKinds)
    cupti.disable(kind);
}

}  // namespace

KernelTrace::KernelTrace() {
  if (is_taken.exchange(true)) {
    missing_ = "another trace of this process watches them";
    return;
  }
  is_on_ = true;
  missing_ = switch_on();
}

KernelTrace::~KernelTrace() {
  finish();
}

KernelTrace::Step::Step(const KernelTrace& trace, int64_t step)
    : is_watched_(trace.is_on_ && trace.missing_.empty()) {
  if (is_watched_)
    cupti.push_id(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, static_cast<uint64_t>(step));
}

KernelTrace::Step::~Step() {
  uint64_t step = 0;
  if (is_watched_) cupti.pop_id(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, &step);
}

std::vector<KernelSpan> KernelTrace::finish() {
  if (!std::exchange(is_on_, false)) return {};
  std::vector<KernelSpan> kernels;
  if (missing_.empty()) {
    cupti.flush(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    switch_off();
    Told& all = told();
    const std::lock_guard lock(all.mutex);
    for (std::size_t i = 0; i < all.kernels.size(); ++i) {
      const auto step = all.step_of.find(all.calls[i]);
      if (step != all.step_of.end()) all.kernels[i].step = step->second;
    }
    kernels = std::move(all.kernels);
    all.kernels.clear();
    all.calls.clear();
    all.step_of.clear();
  }
  is_taken = false;
  std::sort(kernels.begin(), kernels.end(), [](const KernelSpan& a, const KernelSpan& b) {
    return a.end < b.end;
  });
  return kernels;
}

}  // namespace di::ops::cuda

#else

namespace di::ops::cuda {

KernelTrace::KernelTrace() : missing_("this program was built without the headers of CUPTI") {}
KernelTrace::~KernelTrace() = default;
KernelTrace::Step::Step(const KernelTrace&, int64_t) : is_watched_(false) {}
KernelTrace::Step::~Step() = default;

std::vector<KernelSpan> KernelTrace::finish() {
  return {};
}

}  // namespace di::ops::cuda

#endif
