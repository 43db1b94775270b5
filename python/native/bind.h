// The parts of the module deepinfer._native; each adds its classes and functions.
#pragma once

#include <nanobind/nanobind.h>

namespace di::python {

/// Error becomes the class of deepinfer.errors that its code names.
void bind_errors();

/// TokenColumns' owners: CompletionOutput and RequestOutput.
void bind_outputs(nanobind::module_& module);

/// Request, Mailbox, Engine.
void bind_engine(nanobind::module_& module);

}  // namespace di::python
