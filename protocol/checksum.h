// A checksum for files of our own. It finds damage, not intent.
#pragma once
#include <cstdint>
#include <string_view>

namespace lockstep::protocol {

/// Returns FNV-1a over words of eight bytes, little endian, then over the bytes that are left.
uint64_t checksum(std::string_view bytes);

}  // namespace lockstep::protocol
