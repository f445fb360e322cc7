// Cells as the compiler would make them, written by hand: a library holds several, each an entry with its steps.
//
//   CELL(name, step_a, step_b)      after `static void step_a() {...}`
#pragma once
#include "protocol/cell_abi.h"

#define CELL(NAME, ...)                                      \
  static void (*const NAME##_steps[])() = {__VA_ARGS__};     \
  extern "C" const lockstep_cell_entry cell_##NAME;          \
  const lockstep_cell_entry cell_##NAME = {lockstep::kCellAbi, sizeof NAME##_steps / sizeof *NAME##_steps, NAME##_steps}

/// What the compiler puts at the start of each loop body.
#define POLL() \
  if (__atomic_load_n(&lockstep_poll_requested, __ATOMIC_RELAXED)) lockstep_poll()
