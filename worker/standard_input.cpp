#include "worker/standard_input.h"

#include <cstdio>
#include <iostream>
#include <stdexcept>
#include <streambuf>

#include "protocol/next_function.h"

/// This is std::ios::sync_with_stdio(), which gives std::cin a buffer of its own again.
extern "C" bool lockstep_sync_with_stdio(bool sync) __asm__("_ZNSt8ios_base15sync_with_stdioEb");

namespace lockstep::worker {
namespace {

constexpr const char* kNoInput =
    "the standard input of ranks is empty: pass values with --arg NAME=VALUE and read them with arg(\"NAME\"), or read "
    "a "
    "file";

class NoInput : public std::streambuf {
 protected:
  int_type underflow() override { throw std::runtime_error(kNoInput); }
};

bool g_told = false;

ssize_t read_nothing(void*, char*, size_t) {
  if (!g_told) std::fprintf(stderr, "%s\n", kNoInput);
  g_told = true;
  return 0;
}

}  // namespace

void install_input_buffer() {
  // Never destroyed: cells read to the last moment of the process.
  static auto* const buffer = new NoInput;
  std::cin.rdbuf(buffer);
  reset_standard_input();
}

void install_standard_input() {
  install_input_buffer();
  if (std::FILE* file = ::fopencookie(nullptr, "r", {.read = read_nothing, .write = {}, .seek = {}, .close = {}}))
    stdin = file;
}

void reset_standard_input() {
  g_told = false;
  std::cin.clear();
  std::cin.exceptions(std::ios::badbit);  // what the buffer throws goes on to the cell
}

}  // namespace lockstep::worker

bool lockstep_sync_with_stdio(bool sync) {
  auto* const real = lockstep::next_function<"_ZNSt8ios_base15sync_with_stdioEb", bool(bool)>();
  const bool before = real(sync);
  lockstep::worker::install_input_buffer();
  return before;
}
