// What a reader of memory can reach at most: a sum of 64-bit words, built for each instruction set and chosen when the program
// starts.
#pragma once
#include <cstdint>

namespace lockstep::benchmark {

__attribute__((target_clones("avx512f", "avx2", "default"))) inline uint64_t plain_sum(const uint64_t* words,
                                                                                       int64_t count) {
  uint64_t sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += words[i];
  return sum;
}

}  // namespace lockstep::benchmark
