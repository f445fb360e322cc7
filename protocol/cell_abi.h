// A compiled cell and the worker that loads it agree on this. Plain C layout: the compiler emits it as LLVM IR, the
// worker reads it.
#pragma once
#include <cstdint>

extern "C" {

/// Every cell object exports one constant of this type; CompiledObject::entry is its symbol. Loading the object runs
/// nothing: no initialiser is left in .init_array. Running the cell is calling its steps in order.
struct lockstep_cell_entry {
  uint32_t abi;  // kCellAbi
  uint32_t step_count;
  void (*const* steps)();  // initialisers and statements, in the order of the text
};

/// Is not zero while the run thread has been asked to stop. Loop bodies in cells look at it (relaxed) and call
/// lockstep_poll() when it is set.
extern int32_t lockstep_poll_requested;

/// Throws lockstep::Interrupted on the run thread where throwing is allowed; returns everywhere else. Defined by the
/// worker.
void lockstep_poll();
}

namespace lockstep {
inline constexpr uint32_t kCellAbi = 1;

/// What a cell declares has the ABI tag `__cell_7` in its mangled name, where 7 is Compile::cell (`__cell_7_2` in the
/// second object of a cell). Demanglers write it as `Net[abi:__cell_7]`; it ends with the bracket. Statements are
/// functions called `cell_7`, after the cell's number.
inline constexpr const char* kCellTag = "__cell_";
inline constexpr const char* kCellTagDemangled = "[abi:__cell_";
}  // namespace lockstep
