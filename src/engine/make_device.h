// Which device runs the steps of a backend.
#pragma once

#include <memory>

#include "engine/device.h"

namespace di::engine {

/// The device for the backend of `parts.ops`: the processor's, or a GPU's. Throws
/// Error{kOutOfMemory} when its buffers do not fit.
std::unique_ptr<Device> make_device(const DeviceParts& parts);

}  // namespace di::engine
