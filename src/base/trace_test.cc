#include "base/trace.h"

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <thread>

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/json.h"

namespace di {
namespace {

using std::chrono::microseconds;

Json written(const TraceRecorder& trace) {
  std::ostringstream out;
  trace.write(out);
  return Json::parse(out.str(), "the trace", {.reject_duplicate_keys = true});
}

/// Complete events by the name of their track.
std::map<std::string, std::vector<Json>> spans_by_track(const Json& file) {
  std::map<int64_t, std::string> names;
  std::map<std::string, std::vector<Json>> spans;
  for (const Json& event : file.at("traceEvents").as_array()) {
    EXPECT_EQ(event.at("pid").as_integer(), 1);
    if (event.at("name") == Json("thread_name"))
      names[event.at("tid").as_integer()] = event.at("args").at("name").as_string();
    if (event.at("ph") == Json("X")) spans[names.at(event.at("tid").as_integer())].push_back(event);
  }
  return spans;
}

double end_of(const Json& event) {
  return event.at("ts").as_number() + event.at("dur").as_number();
}

TraceSpan moment(const char* name) {
  return {name, TraceClock::now(), TraceClock::now()};
}

TEST(Trace, SpansCarryTheirTimesInMicrosecondsAndTheirArguments) {
  TraceRecorder trace;
  const auto start = TraceClock::now();
  const auto track = trace.track("device");
  trace.add(
      track,
      {"forward", start, start + microseconds(1500)},
      {{"rows", 12}, {"request", std::string_view("a \"quoted\" id")}}
  );
  trace.add(track, {"forward", start + microseconds(2000), start + microseconds(2250)});
  const auto spans = spans_by_track(written(trace)).at("device");
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_EQ(spans[0].at("name").as_string(), "forward");
  EXPECT_GE(spans[0].at("ts").as_number(), 0);
  EXPECT_DOUBLE_EQ(spans[0].at("dur").as_number(), 1500);
  EXPECT_EQ(spans[0].at("args").at("rows").as_integer(), 12);
  EXPECT_EQ(spans[0].at("args").at("request").as_string(), "a \"quoted\" id");
  EXPECT_DOUBLE_EQ(spans[1].at("dur").as_number(), 250);
  EXPECT_NEAR(spans[1].at("ts").as_number() - spans[0].at("ts").as_number(), 2000, 1e-3);
}

TEST(Trace, ScopesNest) {
  TraceRecorder trace;
  const auto track = trace.track("engine");
  {
    TraceScope step(&trace, track, "step");
    { TraceScope plan(&trace, track, "plan", {{"waiting", 3}}); }
    TraceScope apply(&trace, track, "apply");
    apply.add({"tokens", 7});
  }
  const auto spans = spans_by_track(written(trace)).at("engine");
  ASSERT_EQ(spans.size(), 3u);
  const Json& plan = spans[0];
  const Json& apply = spans[1];
  const Json& step = spans[2];
  EXPECT_EQ(plan.at("args").at("waiting").as_integer(), 3);
  EXPECT_EQ(apply.at("args").at("tokens").as_integer(), 7);
  EXPECT_LE(step.at("ts").as_number(), plan.at("ts").as_number());
  EXPECT_LE(end_of(plan), apply.at("ts").as_number() + 1e-3);
  EXPECT_LE(end_of(apply), end_of(step) + 1e-3);
}

TEST(Trace, ATrackOfTheSameNameIsTheSameTrack) {
  TraceRecorder trace;
  trace.add(trace.track("a"), moment("x"));
  trace.add(trace.track("b"), moment("y"));
  trace.add(trace.track("a"), moment("z"));
  const auto spans = spans_by_track(written(trace));
  EXPECT_EQ(spans.size(), 2u);
  EXPECT_EQ(spans.at("a").size(), 2u);
  EXPECT_EQ(spans.at("b").size(), 1u);
}

TEST(Trace, AScopeWithoutARecorderDoesNothing) {
  TraceScope scope(nullptr, {}, "step", {{"rows", 1}});
  scope.add({"tokens", 1});
}

TEST(Trace, SpansBeyondTheLimitAreCountedInTheFile) {
  TraceRecorder trace({.max_spans = 3});
  for (int i = 0; i < 10; ++i)
    trace.add(trace.track("engine"), moment("step"));
  EXPECT_EQ(trace.num_dropped(), 7);
  const Json file = written(trace);
  EXPECT_EQ(spans_by_track(file).at("engine").size(), 3u);
  EXPECT_EQ(file.at("otherData").at("num_dropped").as_integer(), 7);
}

TEST(Trace, RecordingEndsWithItsLastStep) {
  TraceRecorder trace({.num_steps = 2});
  const auto track = trace.track("engine");
  trace.add(track, moment("step"));
  EXPECT_FALSE(trace.step_done());
  EXPECT_TRUE(trace.active());
  trace.add(track, moment("step"));
  EXPECT_TRUE(trace.step_done());
  EXPECT_FALSE(trace.active());
  trace.add(track, moment("step"));
  EXPECT_FALSE(trace.step_done()) << "the last step ends once";
  const Json file = written(trace);
  EXPECT_EQ(spans_by_track(file).at("engine").size(), 2u);
  EXPECT_EQ(file.at("otherData").at("num_steps").as_integer(), 2);
  EXPECT_EQ(trace.num_dropped(), 0) << "what comes after the end is not missing";
}

TEST(Trace, WhatIsKnownOnlyAtTheEndIsAddedThenAndOnce) {
  TraceRecorder trace({.num_steps = 1});
  const auto start = TraceClock::now();
  trace.at_end([&](TraceRecorder& recorder) {
    EXPECT_TRUE(recorder.active());
    const std::string name = "kernel<" + std::to_string(64) + ">";
    recorder.add(recorder.track("kernels"), {recorder.name(name), start, start});
  });
  EXPECT_TRUE(trace.step_done());
  trace.finish();
  const auto spans = spans_by_track(written(trace)).at("kernels");
  ASSERT_EQ(spans.size(), 1u);
  EXPECT_EQ(spans[0].at("name").as_string(), "kernel<64>");
}

TEST(Trace, MayBeFinishedBeforeItsLastStep) {
  TraceRecorder trace({.num_steps = 5});
  bool added = false;
  trace.at_end([&](TraceRecorder&) { added = true; });
  EXPECT_FALSE(trace.step_done());
  EXPECT_FALSE(added);
  trace.finish();
  EXPECT_TRUE(added);
  EXPECT_FALSE(trace.active());
  EXPECT_FALSE(trace.step_done());
}

TEST(Trace, NotesStandBesideTheNumbers) {
  TraceRecorder trace;
  trace.note("kernels", "none: no library");
  const Json file = written(trace);
  EXPECT_EQ(file.at("otherData").at("kernels").as_string(), "none: no library");
  EXPECT_EQ(file.at("otherData").at("num_steps").as_integer(), 0);
}

TEST(Trace, LongTextIsCutBetweenCharacters) {
  TraceRecorder trace;
  std::string text(kMaxTraceText - 1, 'x');
  text += "\xc3\xa9 and more";
  trace.add(trace.track("engine"), moment("step"), {{"request", std::string_view(text)}});
  const Json event = spans_by_track(written(trace)).at("engine").at(0);
  EXPECT_EQ(event.at("args").at("request").as_string(), std::string(kMaxTraceText - 1, 'x'));
}

TEST(Trace, ThreadsRecordWhileAnotherWrites) {
  TraceRecorder trace({.max_spans = 1500});
  const auto work = [&](const char* name) {
    const auto own = trace.track(name);
    const auto shared = trace.track("shared");
    for (int i = 0; i < 500; ++i) {
      TraceScope scope(&trace, own, "work", {{"i", i}});
      trace.add(shared, moment("both"));
    }
  };
  std::thread first(work, "first");
  std::thread second(work, "second");
  for (int i = 0; i < 5; ++i)
    written(trace);
  first.join();
  second.join();
  std::size_t kept = 0;
  for (const auto& [name, spans] : spans_by_track(written(trace)))
    kept += spans.size();
  EXPECT_EQ(kept, 1500u);
  EXPECT_EQ(trace.num_dropped(), 500);
}

TEST(Trace, AFileThatCannotBeWrittenIsAnError) {
  const TraceRecorder trace;
  const auto folder = std::filesystem::temp_directory_path() / "no such folder";
  try {
    trace.write_file(folder / "trace.json");
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kIo);
    EXPECT_NE(std::string(error.what()).find("trace.json"), std::string::npos);
  }
}

TEST(Trace, AFileHoldsWhatTheStreamHolds) {
  TraceRecorder trace;
  trace.add(trace.track("engine"), moment("step"));
  const std::string path = ::testing::TempDir() + "trace_test.json";
  trace.write_file(path);
  std::ifstream file(path);
  std::ostringstream stream;
  std::ostringstream read;
  trace.write(stream);
  read << file.rdbuf();
  EXPECT_EQ(read.str(), stream.str());
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace di
