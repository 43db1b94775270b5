// PCRE2 with its just-in-time compiler where there is one; see regex.h.
#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/regex.h"

#include <algorithm>
#include <new>

#include <fmt/format.h>
#include <pcre2.h>

#include "base/error.h"

namespace di::text {
namespace {

/// Backtracking steps for one match, far above what the official patterns take and far below what a
/// hostile pattern would.
constexpr uint32_t kMatchLimit = 20'000'000;

std::string message_of(int code) {
  unsigned char text[256] = {};
  pcre2_get_error_message(code, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

}  // namespace

Regex::Scratch::Scratch() : match_data_(pcre2_match_data_create(1, nullptr)) {
  if (match_data_ == nullptr) throw std::bad_alloc();
}

Regex::Scratch::~Scratch() {
  pcre2_match_data_free(static_cast<pcre2_match_data*>(match_data_));
}

Regex::Regex(const std::string& pattern, Categories categories, std::string_view where)
    : pattern_(pattern) {
  const std::string exact = pcre2_pattern(pattern, categories);
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code = pcre2_compile(
      reinterpret_cast<PCRE2_SPTR>(exact.data()),
      exact.size(),
      PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C,
      &error,
      &offset,
      nullptr
  );
  if (code == nullptr) {
    throw Error(
        ErrorCode::kInvalidFile,
        fmt::format(
            "{}: the pattern \"{}\" does not compile: {}", where, pattern, message_of(error)
        )
    );
  }
  code_ = std::shared_ptr<const void>(code, [](const void* owned) {
    pcre2_code_free(static_cast<pcre2_code*>(const_cast<void*>(owned)));
  });
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
}

std::optional<ByteRange> Regex::find(std::string_view text, std::size_t from, Scratch& scratch)
    const {
  static const std::shared_ptr<pcre2_match_context> limits = [] {
    std::shared_ptr<pcre2_match_context> made(
        pcre2_match_context_create(nullptr), pcre2_match_context_free
    );
    pcre2_set_match_limit(made.get(), kMatchLimit);
    return made;
  }();
  auto* data = static_cast<pcre2_match_data*>(scratch.match_data_);
  const int result = pcre2_match(
      static_cast<const pcre2_code*>(code_.get()),
      reinterpret_cast<PCRE2_SPTR>(text.data()),
      text.size(),
      from,
      PCRE2_NO_UTF_CHECK,
      data,
      limits.get()
  );
  if (result == PCRE2_ERROR_NOMATCH) return std::nullopt;
  if (result < 0) {
    throw Error(
        ErrorCode::kInvalidFile,
        fmt::format(
            "the split pattern \"{}\" of tokenizer.json cannot be matched here: {}",
            pattern_,
            message_of(result)
        )
    );
  }
  const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(data);
  return ByteRange{std::min(std::max(ends[0], from), ends[1]), ends[1]};
}

}  // namespace di::text
