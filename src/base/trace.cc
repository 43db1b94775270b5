#include "base/trace.h"

#include <algorithm>
#include <fstream>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"

namespace di {
namespace {

constexpr int64_t kProcess = 1;

// Spans are copied out in pieces, so that a thread that records never waits for the whole file.
constexpr std::size_t kSpansPerLock = 256;

/// The longest prefix of `text` that is within the limit and ends between two characters.
std::string_view kept_text(std::string_view text) {
  if (text.size() <= kMaxTraceText) return text;
  std::size_t size = kMaxTraceText;
  while (size > 0 && (static_cast<unsigned char>(text[size]) & 0xC0) == 0x80)
    --size;
  return text.substr(0, size);
}

double microseconds(TraceClock::duration duration) {
  return std::chrono::duration<double, std::micro>(duration).count();
}

Json metadata(const char* what, int64_t thread, const char* key, Json value) {
  return Json::Object{
      {"ph", "M"},
      {"pid", kProcess},
      {"tid", thread},
      {"name", what},
      {"args", Json::Object{{key, std::move(value)}}}};
}

}  // namespace

TraceRecorder::TraceRecorder(const TraceLimits& limits)
    : limits_(limits), origin_(TraceClock::now()) {}

TraceRecorder::~TraceRecorder() = default;

TraceRecorder::Track TraceRecorder::track(std::string_view name) {
  const std::lock_guard lock(tracks_mutex_);
  for (const auto& buffer : tracks_)
    if (buffer->name == name) return Track(buffer.get());
  tracks_.push_back(std::make_unique<Buffer>());
  tracks_.back()->name = name;
  return Track(tracks_.back().get());
}

void TraceRecorder::add(Track track, const TraceSpan& span, std::initializer_list<TraceArg> args) {
  if (!active()) return;
  Json::Object stored;
  for (const TraceArg& arg : args)
    store(arg, stored);
  append(track, span, std::move(stored));
}

void TraceRecorder::store(const TraceArg& arg, Json::Object& into) {
  if (const auto* text = std::get_if<std::string_view>(&arg.value)) {
    into.emplace_back(arg.key, kept_text(*text));
  } else {
    into.emplace_back(arg.key, std::get<int64_t>(arg.value));
  }
}

void TraceRecorder::append(Track track, const TraceSpan& span, Json::Object args) {
  if (!active()) return;
  if (num_spans_.fetch_add(1, std::memory_order_relaxed) >= limits_.max_spans) return;
  const std::lock_guard lock(track.buffer_->mutex);
  track.buffer_->spans.push_back({span, std::move(args)});
}

const char* TraceRecorder::name(std::string_view text) {
  const std::lock_guard lock(texts_mutex_);
  return names_.emplace(text).first->c_str();
}

void TraceRecorder::note(std::string_view about, std::string_view text) {
  const std::lock_guard lock(texts_mutex_);
  notes_.emplace_back(std::string(about), text);
}

void TraceRecorder::at_end(std::function<void(TraceRecorder&)> add_last) {
  const std::lock_guard lock(texts_mutex_);
  last_.push_back(std::move(add_last));
}

void TraceRecorder::finish() {
  std::vector<std::function<void(TraceRecorder&)>> last;
  {
    const std::lock_guard lock(texts_mutex_);
    last.swap(last_);
  }
  for (const auto& add_last : last)
    add_last(*this);
  active_.store(false, std::memory_order_relaxed);
}

bool TraceRecorder::step_done() {
  if (!active()) return false;
  const int64_t done = num_steps_.fetch_add(1, std::memory_order_relaxed) + 1;
  if (limits_.num_steps == 0 || done != limits_.num_steps) return false;
  finish();
  return true;
}

int64_t TraceRecorder::num_dropped() const {
  return std::max<int64_t>(0, num_spans_.load(std::memory_order_relaxed) - limits_.max_spans);
}

std::vector<TraceRecorder::Buffer*> TraceRecorder::buffers() const {
  const std::lock_guard lock(tracks_mutex_);
  std::vector<Buffer*> all;
  for (const auto& buffer : tracks_)
    all.push_back(buffer.get());
  return all;
}

std::vector<TraceRecorder::StoredSpan> TraceRecorder::some_spans(
    Buffer& buffer, std::size_t begin
) {
  const std::lock_guard lock(buffer.mutex);
  const std::size_t end = std::min(buffer.spans.size(), begin + kSpansPerLock);
  const auto first = buffer.spans.begin();
  return {first + static_cast<std::ptrdiff_t>(begin), first + static_cast<std::ptrdiff_t>(end)};
}

std::string TraceRecorder::event_text(const StoredSpan& stored, int64_t thread) const {
  return Json(Json::Object{
                  {"ph", "X"},
                  {"pid", kProcess},
                  {"tid", thread},
                  {"name", stored.span.name},
                  {"ts", microseconds(stored.span.start - origin_)},
                  {"dur", microseconds(stored.span.end - stored.span.start)},
                  {"args", stored.args}}
  ).dump();
}

void TraceRecorder::write(std::ostream& out) const {
  Json::Object other{
      {"num_steps", num_steps_.load(std::memory_order_relaxed)}, {"num_dropped", num_dropped()}};
  {
    const std::lock_guard lock(texts_mutex_);
    other.insert(other.end(), notes_.begin(), notes_.end());
  }
  out << R"({"displayTimeUnit": "ms", "otherData": )" << Json(std::move(other)).dump()
      << R"(, "traceEvents": [)";
  out << '\n' << metadata("process_name", 0, "name", "deepinfer").dump();
  int64_t thread = 0;
  for (Buffer* buffer : buffers()) {
    ++thread;
    out << ",\n" << metadata("thread_name", thread, "name", buffer->name).dump();
    out << ",\n" << metadata("thread_sort_index", thread, "sort_index", thread).dump();
    std::vector<StoredSpan> spans;
    for (std::size_t begin = 0; !(spans = some_spans(*buffer, begin)).empty();
         begin += spans.size()) {
      for (const StoredSpan& stored : spans)
        out << ",\n" << event_text(stored, thread);
    }
  }
  out << "\n]}\n";
}

void TraceRecorder::write_file(const std::string& path) const {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  if (file) write(file);
  file.close();
  if (!file) {
    throw Error(
        ErrorCode::kIo,
        fmt::format(
            "{}: cannot write the trace; expected a writable path with enough room on its disk",
            path
        )
    );
  }
}

TraceScope::TraceScope(
    TraceRecorder* recorder,
    TraceRecorder::Track track,
    const char* name,
    std::initializer_list<TraceArg> args
)
    : recorder_(recorder), track_(track) {
  if (recorder_ == nullptr) return;
  for (const TraceArg& arg : args)
    TraceRecorder::store(arg, args_);
  span_ = {name, TraceClock::now(), {}};
}

TraceScope::~TraceScope() {
  if (recorder_ == nullptr) return;
  span_.end = TraceClock::now();
  recorder_->append(track_, span_, std::move(args_));
}

void TraceScope::add(const TraceArg& arg) {
  if (recorder_ != nullptr) TraceRecorder::store(arg, args_);
}

}  // namespace di
