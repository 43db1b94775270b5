// Any text as a record: parsed or refused with di::Error. What was parsed is consistent, and
// written again it reads the same.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/error.h"
#include "engine/record.h"

namespace {

std::string written(const di::engine::Record& record) {
  using namespace di::engine;
  const bool content = record.header.has_content;
  std::string text = header_line(record.header) + "\n";
  int64_t number = 0;
  for (const RecordedRequest& request : record.requests)
    text += request_line(number++, request, content) + "\n";
  number = 0;
  for (const RecordedRequest& request : record.requests) {
    if (request.finished) text += finished_line(number, request, content) + "\n";
    ++number;
  }
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  try {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    const di::engine::Record record = di::engine::parse_record(text, "fuzz");
    for (const di::engine::RecordedRequest& request : record.requests) {
      const auto num_choices = static_cast<int64_t>(request.choices.size());
      DI_CHECK(!request.finished || num_choices == request.request.sampling.n, "all choices end");
    }
    const std::string again = written(record);
    DI_CHECK(written(di::engine::parse_record(again, "again")) == again, "a record is stable");
  } catch (const di::Error&) {
    return 0;
  }
  return 0;
}
