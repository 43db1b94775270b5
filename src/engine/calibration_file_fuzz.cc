// Any text as a calibration: parsed or refused with di::Error. What was parsed can be used, and
// written again it reads the same.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "base/error.h"
#include "engine/calibration_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  using namespace di::engine;
  try {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    const DraftCalibration calibration = parse_calibration(text, "fuzz");
    for (const double temperature : calibration.for_length(5))
      DI_CHECK(temperature > 0 && temperature < 1e6, "temperatures divide");
    const DraftCalibration again = parse_calibration(calibration_text(calibration), "again");
    DI_CHECK(again == calibration, "a calibration is stable");
  } catch (const di::Error&) {
    return 0;
  }
  return 0;
}
