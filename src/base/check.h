// Checks for what only a bug can break. They stay on in release builds and end the program.
#pragma once

namespace di {

/// Prints the broken condition with its place and aborts.
[[noreturn]] void check_failed(const char* condition, const char* file, int line, const char* why);

}  // namespace di

/// Aborts with `why` when `condition` is false. For invariants, never for user input.
#define DI_CHECK(condition, why) \
  ((condition) ? void(0) : ::di::check_failed(#condition, __FILE__, __LINE__, why))
