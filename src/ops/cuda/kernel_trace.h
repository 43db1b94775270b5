// KernelTrace: which kernels ran on the device, and when, those of recorded graphs among them. The
// library that knows, CUPTI, is loaded when a trace is asked for and not before; a program that
// finds none goes on without.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/trace.h"

namespace di::ops::cuda {

/// One kernel.
struct KernelSpan {
  std::string name;  ///< kernel_name() of its symbol
  TraceClock::time_point start;
  TraceClock::time_point end;
  int64_t step = -1;    ///< the Step in which it was launched; −1: none
  int64_t blocks = 0;   ///< of its grid
  int64_t threads = 0;  ///< of a block
};

/// A kernel's name as its source has it, from the symbol: without its parameters and the
/// namespaces of this project.
std::string kernel_name(const char* symbol);

/// Watches all kernels of the process from its construction to finish().
///
/// Thread: one at a time, of which there may be several in turn; a Step's thread is its own.
class KernelTrace {
 public:
  /// Begins, which takes some milliseconds the first time.
  KernelTrace();
  ~KernelTrace();
  KernelTrace(const KernelTrace&) = delete;

  /// Why no kernels are seen: a sentence without its end, or nothing when they are.
  const std::string& missing() const { return missing_; }

  /// What its thread launches while it lives belongs to a step.
  class Step {
   public:
    Step(const KernelTrace& trace, int64_t step);
    ~Step();
    Step(const Step&) = delete;

   private:
    bool is_watched_;
  };

  /// Ends, and returns the kernels that are done by now, in order of their end.
  std::vector<KernelSpan> finish();

 private:
  std::string missing_;
  bool is_on_ = false;
};

}  // namespace di::ops::cuda
