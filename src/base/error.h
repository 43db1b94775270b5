// The error that a user can fix: bad file, bad flag, too little memory. Thrown before the step
// loop, never inside it.
#pragma once

#include <stdexcept>
#include <string>

namespace di {

/// What kind of thing is wrong; the program's exit code and the server's status come from it.
enum class ErrorCode {
  kInvalidArgument,  ///< a flag, option or request value is out of its range
  kInvalidFile,      ///< a file breaks its format or contradicts another file
  kNotFound,         ///< a file, tensor or key that must exist does not
  kUnsupported,      ///< well formed, but this build or machine cannot do it
  kOutOfMemory,      ///< the plan does not fit; the message holds the numbers
  kIo,               ///< the operating system refused a read, write or map
  kBusy,             ///< a queue is full; the same request may be taken later
};

/// The stable lower-case name of a code, used in JSON output.
const char* name_of(ErrorCode code);

/// An error with a message that says what, where, expected, found, and what to do.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const { return code_; }

 private:
  ErrorCode code_;
};

}  // namespace di
