// The entry points of libFuzzer, which has main(): https://llvm.org/docs/LibFuzzer.html
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/fuzz/fuzz_target.h"

namespace {

lockstep::fuzz::Target chosen = nullptr;

}  // namespace

/// libFuzzer leaves options that begin with two dashes to the program.
extern "C" int LLVMFuzzerInitialize(int* count, char*** arguments) {
  constexpr const char* kOption = "--target=";
  for (int i = 1; i < *count; ++i) {
    const char* argument = (*arguments)[i];
    if (std::strncmp(argument, kOption, std::strlen(kOption)) != 0) continue;
    const auto found = lockstep::fuzz::targets().find(argument + std::strlen(kOption));
    if (found != lockstep::fuzz::targets().end()) chosen = found->second;
  }
  if (chosen) return 0;
  std::fprintf(stderr, "name a target: --target=NAME, which is one of\n");
  for (const auto& [name, target] : lockstep::fuzz::targets()) std::fprintf(stderr, "%s\n", name.c_str());
  std::exit(2);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  chosen({reinterpret_cast<const char*>(data), size});
  return 0;
}
