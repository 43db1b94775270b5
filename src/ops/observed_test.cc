#include "ops/observed.h"

#include <sstream>
#include <vector>

#include <gtest/gtest.h>

#include "base/json.h"
#include "ops/traced_ops.h"

namespace di::ops {
namespace {

class Recorder : public OpObserver {
 public:
  using OpObserver::OpObserver;
  void on_op(const OpSpan& span) override { spans.push_back(span); }
  std::vector<OpSpan> spans;
};

/// Two small ops whose results show that the backend ran.
struct Work {
  ThreadPool pool{1};
  Arena scratch;
  Exec exec{pool, scratch};
  std::vector<bf16> x = std::vector<bf16>(3 * 2, to_bf16(2.0f));
  std::vector<bf16> weight = std::vector<bf16>(2, to_bf16(1.0f));
  std::vector<float> a = std::vector<float>(3, 1.0f);

  void run(const OpTable& table) {
    const View<bf16, 2> rows(x.data(), 3, 2);
    table.rms_norm(exec, {.y = rows, .x = rows, .weight = View<bf16, 1>(weight.data(), 2)});
    table.mhc_collapse(
        exec,
        {.x = rows, .h = View<bf16, 3>(x.data(), 3, 1, 2), .a = View<float, 2>(a.data(), 3, 1)}
    );
  }
};

TEST(ObservedOps, TheBackendRunsAndTheObserverIsTold) {
  Recorder recorder(ref_ops());
  Work work;
  work.exec.observer = &recorder;
  const auto before = std::chrono::steady_clock::now();
  work.run(recorder.table());
  EXPECT_EQ(to_float(work.x[0]), 1.0f) << "2 over its own root mean square";
  ASSERT_EQ(recorder.spans.size(), 2u);
  EXPECT_STREQ(recorder.spans[0].op, "rms_norm");
  EXPECT_STREQ(recorder.spans[1].op, "mhc_collapse");
  for (const OpSpan& span : recorder.spans) {
    EXPECT_EQ(span.rows, 3);
    EXPECT_LE(before, span.start);
    EXPECT_LE(span.start, span.end);
  }
  EXPECT_LE(recorder.spans[0].end, recorder.spans[1].start);
}

TEST(ObservedOps, ObserversOfTwoExecsDoNotMix) {
  Recorder first(ref_ops());
  Recorder second(ref_ops());
  Work one;
  Work other;
  one.exec.observer = &first;
  other.exec.observer = &second;
  one.run(first.table());
  other.run(second.table());
  other.run(second.table());
  EXPECT_EQ(first.spans.size(), 2u);
  EXPECT_EQ(second.spans.size(), 4u);
}

TEST(ObservedOps, TheTableSaysWhatItsBackendSays) {
  const Recorder recorder(ref_ops());
  EXPECT_STREQ(recorder.table().name, "ref");
  EXPECT_EQ(recorder.table().pack, ref_ops().pack);
  EXPECT_EQ(recorder.table().packed_bytes, ref_ops().packed_bytes);
}

TEST(ObservedOps, EveryEntryIsObserved) {
  const Recorder recorder(ref_ops());
  const OpTable& observed = recorder.table();
  const OpTable& plain = ref_ops();
  EXPECT_NE(observed.quantize_fp8, plain.quantize_fp8);
  EXPECT_NE(observed.linear_q8, plain.linear_q8);
  EXPECT_NE(observed.linear, plain.linear);
  EXPECT_NE(observed.linear_set, plain.linear_set);
  EXPECT_NE(observed.rms_norm, plain.rms_norm);
  EXPECT_NE(observed.rope, plain.rope);
  EXPECT_NE(observed.engram_lookup, plain.engram_lookup);
  EXPECT_NE(observed.engram_gate, plain.engram_gate);
  EXPECT_NE(observed.mhc_mix, plain.mhc_mix);
  EXPECT_NE(observed.mhc_collapse, plain.mhc_collapse);
  EXPECT_NE(observed.mhc_expand, plain.mhc_expand);
  EXPECT_NE(observed.compressor_pool, plain.compressor_pool);
  EXPECT_NE(observed.carry_store, plain.carry_store);
  EXPECT_NE(observed.compressed_store, plain.compressed_store);
  EXPECT_NE(observed.quantize_mxfp4, plain.quantize_mxfp4);
  EXPECT_NE(observed.index_key_store, plain.index_key_store);
  EXPECT_NE(observed.index_select, plain.index_select);
  EXPECT_NE(observed.window_records, plain.window_records);
  EXPECT_NE(observed.sparse_attention, plain.sparse_attention);
  EXPECT_NE(observed.window_store, plain.window_store);
  EXPECT_NE(observed.route, plain.route);
  EXPECT_NE(observed.swiglu, plain.swiglu);
  EXPECT_NE(observed.experts, plain.experts);
}

TEST(ObservedOps, TracedOpsBecomeSpansOfTheirTrack) {
  TraceRecorder trace;
  TracedOps traced(ref_ops(), trace, trace.track("compute"));
  Work work;
  work.exec.observer = &traced;
  work.run(traced.table());
  std::ostringstream out;
  trace.write(out);
  std::vector<std::string> names;
  const Json file = Json::parse(out.str(), "the trace");
  for (const Json& event : file.at("traceEvents").as_array()) {
    if (event.at("ph") != Json("X")) continue;
    names.push_back(event.at("name").as_string());
    EXPECT_EQ(event.at("args").at("rows").as_integer(), 3);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"rms_norm", "mhc_collapse"}));
}

}  // namespace
}  // namespace di::ops
