// Checksums for files and texts of our own. They find damage and differences, not intent.
#pragma once
#include <cstdint>
#include <string_view>

namespace lockstep::protocol {

inline constexpr uint64_t kFnvBasis = 0xcbf29ce484222325u, kFnvPrime = 0x100000001b3u;

/// Returns FNV-1a of 64 bits, http://www.isthe.com/chongo/tech/comp/fnv/, of bytes that follow those of `hash`.
constexpr uint64_t fnv1a(std::string_view bytes, uint64_t hash = kFnvBasis) {
  for (const char byte : bytes) hash = (hash ^ static_cast<unsigned char>(byte)) * kFnvPrime;
  return hash;
}

/// Returns FNV-1a over words of eight bytes, little endian, then over the bytes that are left.
uint64_t checksum(std::string_view bytes);

}  // namespace lockstep::protocol
