#include "protocol/checksum.h"

#include <bit>
#include <cstring>

namespace lockstep::protocol {

uint64_t checksum(std::string_view bytes) {
  static_assert(std::endian::native == std::endian::little);
  uint64_t value = kFnvBasis;
  size_t at = 0;
  for (; at + 8 <= bytes.size(); at += 8) {
    uint64_t word;
    std::memcpy(&word, bytes.data() + at, sizeof word);
    value = (value ^ word) * kFnvPrime;
  }
  return fnv1a(bytes.substr(at), value);
}

}  // namespace lockstep::protocol
