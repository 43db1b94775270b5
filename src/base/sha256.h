// SHA-256 (FIPS 180-4), to compare large results with the digests that fixtures hold.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace di {

/// The digest of `bytes` as 64 lower-case hexadecimal digits.
std::string sha256_hex(std::span<const std::byte> bytes);

}  // namespace di
