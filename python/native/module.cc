// The module deepinfer._native: what the Python files of the package are written against.
#include <nanobind/nanobind.h>

#include "bind.h"

NB_MODULE(_native, module) {
  module.doc() = "The engine, as the Python files of deepinfer see it. Not for direct use.";
  di::python::bind_errors();
  di::python::bind_outputs(module);
  di::python::bind_engine(module);
}
