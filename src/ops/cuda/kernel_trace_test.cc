#include "ops/cuda/kernel_trace.h"

#include <gtest/gtest.h>

#include "ops/cuda/benchmarks.h"
#include "ops/cuda/graph.h"
#include "ops/cuda/testing.h"

namespace di::ops::cuda {
namespace {

TEST(KernelName, IsThatOfTheSource) {
  EXPECT_EQ(
      kernel_name("_ZN2di3ops4cuda12_GLOBAL__N_110norm_sitesERNS2_9RowsShapeEll"), "norm_sites"
  );
  EXPECT_EQ(kernel_name("_Z5alphaPi"), "alpha");
  EXPECT_EQ(kernel_name("plain_symbol"), "plain_symbol");
}

TEST(KernelName, KeepsTemplateArguments) {
  EXPECT_EQ(
      kernel_name(
          "_ZN2di3ops4cuda10add_slicesINS1_12LinearTraitsILNS0_12WeightFormatE1ELi16ELb0EEEE"
          "EvNS1_10LinearArgsE"
      ),
      "add_slices<LinearTraits<(ops::WeightFormat)1, 16, false> >"
  );
  EXPECT_EQ(kernel_name("_ZN2di3runIiEEvPFvT_E"), "run<int>") << "parentheses in the parameters";
}

TEST(KernelTrace, NamesTheKernelsOfARecordingMadeBeforeIt) {
  DI_NEEDS_GPU();
  const auto stream = device_memory().make_stream();
  const auto enqueue = [&] { occupy(stream.get(), 20e-6); };
  enqueue();
  const Graph graph = Graph::record(stream.get(), enqueue);
  device_memory().wait(stream.get());

  KernelTrace trace;
  if (!trace.missing().empty()) GTEST_SKIP() << trace.missing();
  const TraceClock::time_point begin = TraceClock::now();
  {
    const KernelTrace::Step step(trace, 7);
    graph.play(stream.get());
    enqueue();
  }
  enqueue();  // of no step
  device_memory().wait(stream.get());
  const TraceClock::time_point end = TraceClock::now();
  const std::vector<KernelSpan> kernels = trace.finish();
  ASSERT_EQ(kernels.size(), 3u);
  for (const KernelSpan& kernel : kernels) {
    EXPECT_EQ(kernel.name, "wait_nanoseconds");
    EXPECT_EQ(kernel.blocks, 1);
    EXPECT_EQ(kernel.threads, 1);
    EXPECT_GE(kernel.end - kernel.start, std::chrono::microseconds(19));
    EXPECT_GE(kernel.start, begin - std::chrono::microseconds(50)) << "clocks agree";
    EXPECT_LE(kernel.end, end + std::chrono::microseconds(50));
  }
  EXPECT_EQ(kernels[0].step, 7);
  EXPECT_EQ(kernels[1].step, 7);
  EXPECT_EQ(kernels[2].step, -1);
}

TEST(KernelTrace, IsOneAtATimeAndSaysSo) {
  DI_NEEDS_GPU();
  KernelTrace first;
  if (!first.missing().empty()) GTEST_SKIP() << first.missing();
  {
    KernelTrace second;
    EXPECT_NE(second.missing().find("another trace"), std::string::npos);
    EXPECT_TRUE(second.finish().empty());
  }
  EXPECT_TRUE(first.finish().empty()) << "nothing ran";
  EXPECT_TRUE(KernelTrace().missing().empty()) << "the first is over";
}

}  // namespace
}  // namespace di::ops::cuda
