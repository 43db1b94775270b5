// Which instruction sets this processor and this operating system offer.
#pragma once

#include <string>
#include <vector>

namespace di {

/// The code paths of the `cpu` backend, each a superset of the one before.
enum class Isa {
  kAvx2,    ///< AVX2, FMA, F16C
  kAvx512,  ///< AVX-512 F, BW, DQ, VL
  kVnni,    ///< kAvx512 with VNNI, VBMI and BF16
  kAmx,     ///< kVnni with AMX tiles for int8
};

/// What the processor reports and the system enables.
struct CpuFeatures {
  std::string model;  ///< the processor's own name
  bool avx2_fma = false;
  bool avx512 = false;
  bool avx512_vnni = false;
  bool avx512_vbmi = false;
  bool avx512_bf16 = false;
  bool amx_int8 = false;
};

/// Asks the processor. Enables AMX for this process when the system allows it.
CpuFeatures detect_cpu();

/// The best path for these features. Throws Error{kUnsupported} when not even AVX2 is there.
Isa best_isa(const CpuFeatures& features);

/// Every path that these features allow, the slowest first; none when not even AVX2 is there.
std::vector<Isa> usable_isas(const CpuFeatures& features);

/// "avx2", "avx512", "vnni" or "amx".
const char* name_of(Isa isa);

/// The path called `name`. Throws Error{kInvalidArgument} listing the names there are.
Isa isa_from_name(const std::string& name);

}  // namespace di
