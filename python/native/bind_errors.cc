// How errors of the engine become exceptions of Python.
#include <exception>

#include "base/error.h"
#include "bind.h"

namespace di::python {
namespace {

/// The class in deepinfer.errors that a code stands for.
const char* class_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument: return "InvalidArgument";
    case ErrorCode::kInvalidFile: return "InvalidFile";
    case ErrorCode::kNotFound: return "NotFound";
    case ErrorCode::kUnsupported: return "Unsupported";
    case ErrorCode::kOutOfMemory: return "OutOfMemory";
    case ErrorCode::kIo: return "Io";
    case ErrorCode::kBusy: return "Busy";
  }
  return "Error";
}

void translate(const std::exception_ptr& exception, void* /*payload*/) {
  try {
    std::rethrow_exception(exception);
  } catch (const Error& error) {
    const auto errors = nanobind::module_::import_("deepinfer.errors");
    PyErr_SetString(errors.attr(class_of(error.code())).ptr(), error.what());
  }
}

}  // namespace

void bind_errors() {
  nanobind::register_exception_translator(translate);
}

}  // namespace di::python
