#include "protocol/checksum.h"

#include <bit>
#include <cstring>

namespace lockstep::protocol {

uint64_t checksum(std::string_view bytes) {
  static_assert(std::endian::native == std::endian::little);
  constexpr uint64_t kPrime = 0x100000001b3u;
  uint64_t value = 0xcbf29ce484222325u;
  size_t at = 0;
  for (; at + 8 <= bytes.size(); at += 8) {
    uint64_t word;
    std::memcpy(&word, bytes.data() + at, sizeof word);
    value = (value ^ word) * kPrime;
  }
  for (; at < bytes.size(); ++at) value = (value ^ static_cast<unsigned char>(bytes[at])) * kPrime;
  return value;
}

}  // namespace lockstep::protocol
