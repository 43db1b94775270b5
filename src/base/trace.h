// TraceRecorder: who did what when, for a bounded number of steps, as a file that Perfetto and
// chrome://tracing open. A track is one line of the picture: a thread, or a device.
//
// Where no recorder is given nothing happens: a TraceScope with a null pointer reads no clock and
// allocates nothing.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <ostream>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/json.h"

namespace di {

/// The clock of every span.
using TraceClock = std::chrono::steady_clock;

/// One number or text beside a span. Text is UTF-8; its first kMaxTraceText bytes are kept.
struct TraceArg {
  const char* key = nullptr;  ///< a literal
  std::variant<int64_t, std::string_view> value;
};
inline constexpr std::size_t kMaxTraceText = 120;

/// A piece of work: from `start` to `end` on one track.
struct TraceSpan {
  const char* name = nullptr;  ///< a literal, or TraceRecorder::name()
  TraceClock::time_point start;
  TraceClock::time_point end;
};

/// When a recorder stops by itself.
struct TraceLimits {
  int64_t num_steps = 0;        ///< calls of step_done(); 0: no limit
  int64_t max_spans = 250'000;  ///< further ones are counted, not kept; about 200 bytes each
};

/// Collects spans of any number of threads and writes them out.
///
/// Thread: all members may be called at any time from any thread. Each track has a lock of its own,
/// held for one append or the copy of a few spans, so threads with a track each do not wait for one
/// another.
class TraceRecorder {
 private:
  struct Buffer;

 public:
  /// A line of the picture. Plain handle; valid as long as its recorder.
  class Track {
   public:
    Track() = default;

   private:
    friend class TraceRecorder;
    explicit Track(Buffer* buffer) : buffer_(buffer) {}
    Buffer* buffer_ = nullptr;
  };

  explicit TraceRecorder(const TraceLimits& limits = {});
  ~TraceRecorder();
  TraceRecorder(const TraceRecorder&) = delete;
  TraceRecorder& operator=(const TraceRecorder&) = delete;

  /// The track of that name, made at its first mention. Tracks are drawn in the order of their
  /// first mention.
  Track track(std::string_view name);

  /// Records a span on one of this recorder's tracks. Spans of one track should nest.
  void add(Track track, const TraceSpan& span, std::initializer_list<TraceArg> args = {});

  /// A name that is no literal, for spans of this recorder.
  const char* name(std::string_view text);

  /// A sentence about the trace as a whole, beside the numbers of steps and spans in the file.
  void note(std::string_view about, std::string_view text);

  /// Has `add_last` called once, by the thread that ends the trace, for spans that are known only
  /// then.
  void at_end(std::function<void(TraceRecorder&)> add_last);

  /// Ends the trace before its last step. No other thread may be in step_done().
  void finish();

  /// Tells that a step ended. After num_steps of them the trace ends, as by finish(), and further
  /// spans are ignored. Returns whether this was the last step, which it says once.
  bool step_done();

  /// False once the last step is done.
  bool active() const { return active_.load(std::memory_order_relaxed); }

  /// Spans that max_spans left no room for.
  int64_t num_dropped() const;

  /// Writes all that was recorded so far as Chrome-trace JSON: complete events ("ph": "X") with
  /// times in microseconds since the recorder was made, track names as metadata, and under
  /// "otherData" the numbers of steps and of dropped spans, and the notes.
  void write(std::ostream& out) const;

  /// write() into a file. Throws Error{kIo} when it cannot be written.
  void write_file(const std::string& path) const;

 private:
  friend class TraceScope;

  struct StoredSpan {
    TraceSpan span;
    Json::Object args;
  };
  struct Buffer {
    std::string name;
    std::mutex mutex;
    std::vector<StoredSpan> spans;
  };

  static void store(const TraceArg& arg, Json::Object& into);
  void append(Track track, const TraceSpan& span, Json::Object args);
  std::vector<Buffer*> buffers() const;
  static std::vector<StoredSpan> some_spans(Buffer& buffer, std::size_t begin);
  std::string event_text(const StoredSpan& stored, int64_t thread) const;

  const TraceLimits limits_;
  const TraceClock::time_point origin_;
  std::atomic<bool> active_{true};
  std::atomic<int64_t> num_steps_{0};
  std::atomic<int64_t> num_spans_{0};  // offered: those kept and those dropped
  mutable std::mutex tracks_mutex_;
  std::vector<std::unique_ptr<Buffer>> tracks_;
  mutable std::mutex texts_mutex_;
  std::set<std::string, std::less<>> names_;
  Json::Object notes_;
  std::vector<std::function<void(TraceRecorder&)>> last_;
};

/// Records the time from its construction to its end, unless the recorder is null.
class TraceScope {
 public:
  TraceScope(
      TraceRecorder* recorder,
      TraceRecorder::Track track,
      const char* name,
      std::initializer_list<TraceArg> args = {}
  );
  ~TraceScope();
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;

  /// Adds what became known only inside the scope.
  void add(const TraceArg& arg);

 private:
  TraceRecorder* recorder_;
  TraceRecorder::Track track_;
  TraceSpan span_;
  Json::Object args_;
};

}  // namespace di
