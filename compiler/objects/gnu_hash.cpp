#include "compiler/objects/gnu_hash.h"

#include <algorithm>
#include <bit>

namespace lockstep::compiler {

uint32_t gnu_hash(std::string_view name) {
  uint32_t hash = 5381;
  for (const char c : name) hash = hash * 33 + static_cast<unsigned char>(c);
  return hash;
}

uint32_t gnu_hash_buckets(size_t count) { return static_cast<uint32_t>(count / 4 + 1); }

std::string gnu_hash_section(const std::vector<uint32_t>& hashes, uint32_t first) {
  constexpr uint32_t kShift = 26, kBitsPerSymbol = 12, kWordBits = 64;
  const uint32_t buckets = gnu_hash_buckets(hashes.size());
  const auto words =
      static_cast<uint32_t>(std::bit_ceil(std::max<size_t>(hashes.size() * kBitsPerSymbol / kWordBits, 1)));
  std::vector<uint64_t> bloom(words);
  std::vector<uint32_t> bucket(buckets), chain(hashes.size());
  for (size_t i = 0; i < hashes.size(); ++i) {
    const uint32_t hash = hashes[i];
    bloom[hash / kWordBits % words] |= uint64_t{1} << hash % kWordBits | uint64_t{1} << (hash >> kShift) % kWordBits;
    uint32_t& start = bucket[hash % buckets];
    if (start == 0) start = first + static_cast<uint32_t>(i);
    const bool last = i + 1 == hashes.size() || hashes[i + 1] % buckets != hash % buckets;
    chain[i] = last ? hash | 1 : hash & ~1u;
  }
  const uint32_t header[] = {buckets, first, words, kShift};
  std::string section(reinterpret_cast<const char*>(header), sizeof header);
  section.append(reinterpret_cast<const char*>(bloom.data()), bloom.size() * sizeof bloom[0]);
  section.append(reinterpret_cast<const char*>(bucket.data()), bucket.size() * sizeof bucket[0]);
  section.append(reinterpret_cast<const char*>(chain.data()), chain.size() * sizeof chain[0]);
  return section;
}

}  // namespace lockstep::compiler
