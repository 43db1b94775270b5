#include "base/error.h"

namespace di {

const char* name_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument: return "invalid_argument";
    case ErrorCode::kInvalidFile: return "invalid_file";
    case ErrorCode::kNotFound: return "not_found";
    case ErrorCode::kUnsupported: return "unsupported";
    case ErrorCode::kOutOfMemory: return "out_of_memory";
    case ErrorCode::kIo: return "io";
    case ErrorCode::kBusy: return "busy";
  }
  return "unknown";
}

}  // namespace di
