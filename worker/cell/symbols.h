// Turns addresses into frames that a user recognises: "train() at cell 7, line 4", "at::matmul(...) in
// libtorch_cpu.so". No lock of the dynamic loader is taken, so this works while another thread is stuck in dlopen.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "worker/process/stack.h"

namespace lockstep::worker {

struct Frame {
  std::string function;  // demangled and clean; empty where unknown, and for a cell's own level
  int64_t cell = 0;      // 0: not code of a cell
  int line = 0;
  std::string object;    // "libtorch_cpu.so"; empty for code of cells
  bool worker = false;   // code of what runs cells

  std::string str() const;
};

/// Each thread that resolves has one: it keeps the line tables of the cells that it has met.
class Symbols {
 public:
  Symbols();
  ~Symbols();

  /// Returns frames, innermost first; a call that was inlined is one of its own. Frames of the worker are left out, but for
  /// functions that stand in front of those of the C library that wait for threads.
  std::vector<Frame> resolve(std::span<const uintptr_t> addresses);
  std::vector<Frame> resolve(const Stack& stack) { return resolve({stack.pc, static_cast<size_t>(stack.size)}); }

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Returns the innermost frame in a cell's own text; nullptr where there is none.
const Frame* innermost_cell_frame(const std::vector<Frame>& frames);

/// Returns "cell 7, line 4".
std::string where(int64_t cell, int line);

/// Returns the number in ".../cell_7.cpp", by which line tables name the files of cells; 0 for another file.
int64_t cell_of_source(std::string_view path);

}  // namespace lockstep::worker
