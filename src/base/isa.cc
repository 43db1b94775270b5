#include "base/isa.h"

#include <cstdint>
#include <cstring>

#include <cpuid.h>
#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/error.h"

namespace di {
namespace {

struct Registers {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

Registers cpuid(uint32_t leaf, uint32_t subleaf = 0) {
  Registers r;
  __get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx);
  return r;
}

uint64_t xgetbv() {
  uint32_t low = 0, high = 0;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return uint64_t{high} << 32 | low;
}

bool bit(uint64_t word, int index) {
  return (word >> index & 1) != 0;
}

std::string processor_name() {
  char text[49] = {};
  for (uint32_t part = 0; part < 3; ++part) {
    const Registers r = cpuid(0x80000002u + part);
    std::memcpy(text + part * 16, &r, 16);
  }
  std::string name(text);
  const auto first = name.find_first_not_of(' ');
  const auto last = name.find_last_not_of(' ');
  return first == std::string::npos ? "unknown" : name.substr(first, last - first + 1);
}

/// Linux hands out the AMX tile registers on request only.
bool request_amx() {
  constexpr long kArchReqXcompPerm = 0x1023;
  constexpr long kXfeatureXtiledata = 18;
  return syscall(SYS_arch_prctl, kArchReqXcompPerm, kXfeatureXtiledata) == 0;
}

}  // namespace

CpuFeatures detect_cpu() {
  CpuFeatures features;
  features.model = processor_name();
  const Registers basic = cpuid(1);
  if (!bit(basic.ecx, 27)) return features;  // no OSXSAVE: the system saves no vector state
  const uint64_t enabled = xgetbv();
  const bool ymm = (enabled & 0x6) == 0x6;
  const bool zmm = ymm && (enabled & 0xe0) == 0xe0;
  const bool tiles = (enabled & 0x60000) == 0x60000;
  const Registers extended = cpuid(7);
  const Registers extended1 = cpuid(7, 1);
  features.avx2_fma = ymm && bit(extended.ebx, 5) && bit(basic.ecx, 12) && bit(basic.ecx, 29);
  features.avx512 = zmm && bit(extended.ebx, 16) && bit(extended.ebx, 17) &&
                    bit(extended.ebx, 30) && bit(extended.ebx, 31);
  features.avx512_vnni = features.avx512 && bit(extended.ecx, 11);
  features.avx512_vbmi = features.avx512 && bit(extended.ecx, 1);
  features.avx512_bf16 = features.avx512 && bit(extended1.eax, 5);
  features.amx_int8 = tiles && bit(extended.edx, 24) && bit(extended.edx, 25) && request_amx();
  return features;
}

Isa best_isa(const CpuFeatures& f) {
  if (!f.avx2_fma) {
    throw Error(
        ErrorCode::kUnsupported,
        fmt::format(
            "this processor ({}) has no AVX2 with FMA, which the cpu backend needs; "
            "try --backend ref, which is slow but runs anywhere",
            f.model
        )
    );
  }
  if (!f.avx512) return Isa::kAvx2;
  if (!(f.avx512_vnni && f.avx512_vbmi && f.avx512_bf16)) return Isa::kAvx512;
  return f.amx_int8 ? Isa::kAmx : Isa::kVnni;
}

std::vector<Isa> usable_isas(const CpuFeatures& f) {
  std::vector<Isa> usable;
  for (const Isa isa : {Isa::kAvx2, Isa::kAvx512, Isa::kVnni, Isa::kAmx}) {
    if (f.avx2_fma && isa <= best_isa(f)) usable.push_back(isa);
  }
  return usable;
}

const char* name_of(Isa isa) {
  switch (isa) {
    case Isa::kAvx2: return "avx2";
    case Isa::kAvx512: return "avx512";
    case Isa::kVnni: return "vnni";
    case Isa::kAmx: return "amx";
  }
  return "unknown";
}

Isa isa_from_name(const std::string& name) {
  for (const Isa isa : {Isa::kAvx2, Isa::kAvx512, Isa::kVnni, Isa::kAmx}) {
    if (name == name_of(isa)) return isa;
  }
  throw Error(
      ErrorCode::kInvalidArgument,
      fmt::format("unknown instruction set \"{}\"; choose avx2, avx512, vnni or amx", name)
  );
}

}  // namespace di
