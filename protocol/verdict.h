// What a finding says, in enumerators. JSON and people have their words, which are in one table each (status.cpp).
#pragma once
#include "protocol/status.h"

namespace lockstep {

/// Says what is wrong, or that nothing is. docs/findings.md explains each.
enum class Verdict {
  ok,
  mismatch,
  missing,
  shape_mismatch,
  dtype_mismatch,
  order_mismatch,
  op_mismatch,
  nan,
  inf,
  outlier,
  unused,
  stale,
  hang,
  straggler,
  dead,
  diverged_seed,
  duplicate_data,
  uneven_data,
  unsupported
};

/// Says what a finding is about. For a hang it is the state of the ranks that the others wait for.
enum class FindingKind {
  call,  // of the inspector itself: a rank did not make it, or made another one

  // These are what verify and grads compare.
  parameter,
  buffer,
  mode,  // train() or eval()
  state,
  hyperparameter,
  tensor,
  rng,
  value,
  attribute,
  record,  // of a file
  storage,
  unsupported,
  gradient,
  reduction,
  micro_batch,

  // These are of data.
  order,
  sample,
  epoch,
  batch,
  size,
  index,
  repeat,

  // These are of ranks.
  rank,
  local_rank,
  device,
  environment,
  version,
  code,
  setting,

  // These are of lockstep, and the phases of a step.
  update,
  computation,
  overflow,
  in_flight,
  count,
  input,
  forward,
  backward,
  optimizer,

  // These are of hang.
  finished,
  threw,
  stopped,
  not_in_cell,
  left_group,
  died,
  other_collective,
  tag,
  outside_group,
  unknown,  // what a thread does, like those that follow and `device`: without a stack
  idle,  // no cell runs
  computing,
  collective,  // in a call of dist:: or c10d
  sleeping,
  lock,  // a mutex, a read-write lock, a semaphore
  condition,  // a condition variable, a future, a thread to join
  loading_data,  // in a data loader
  reading,  // a file, a pipe, a terminal
  polling,  // descriptors, a socket
  child,  // another process
  blocked,  // in the kernel, for an unknown reason
  stream,  // its device's stream has not come to the collective
  communicator  // what NCCL says of it
};

}  // namespace lockstep
