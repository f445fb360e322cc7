// The kernel that takes fingerprints of many tensors in one launch and one read of their memory, with the bits that the
// CPU's loops give (inspectors/fingerprint/loop.h). A block of 256 threads reads a chunk of 64 KiB: four threads a
// stripe of 1,024 bytes, each 16 of every 64 bytes, so that all that goes into one lane of a stripe is in one thread.
//
//   copy      copies the keys and the record of the chunk's tensor into shared memory
//   read      reads the chunk: each stripe's hash lanes, sums of squares, largest magnitude
//   judge     stripes with NaN, Inf, huge or tiny values are read again, with care
//   chain     goes through the stripes in order: one thread a lane
//   fold      lanes → the chunk's result, in global memory
//   ticket    whether this block is the last of its group of 64 chunks to come this far; if not, it ends
//   group     combines the group's results in order
//   ticket    whether it is the last group of its tensor
//   tensor    combines the groups in order, and writes the fingerprint
//
// Who comes last does not matter for the result: it is combined in the order of the chunks.
#pragma once
#include "cuda/bodies/fingerprint_combine.h"
#include "cuda/bodies/fingerprint_judge.h"
#include "cuda/bodies/fingerprint_read.h"

namespace lockstep::cuda {

LOCKSTEP_HOST_DEVICE void fingerprint_copy(FingerprintContext& context) {
  constexpr uint32_t kCount = sizeof(kernels::Keys::words) / sizeof(uint32_t);
  for (uint32_t i = context.thread; i < kCount; i += kFingerprintThreads)
    context.shared.keys.words[i] = context.launch.keys->words[i];
  if (context.thread == kFingerprintThreads - 1)
    context.shared.tensor = context.launch.tensors[context.launch.tensor_of_chunk[context.block]];
}

inline constexpr uint32_t kFingerprintPhases = 9;

template <uint32_t phase>
LOCKSTEP_HOST_DEVICE void fingerprint_phase(FingerprintContext& context) {
  if constexpr (phase == 0) fingerprint_copy(context);
  if constexpr (phase == 1) fingerprint_read(context);
  if constexpr (phase == 2) fingerprint_judge(context);
  if constexpr (phase == 3) fingerprint_chain(context);
  if constexpr (phase == 4) fingerprint_fold(context);
  if constexpr (phase == 5) fingerprint_group_ticket(context);
  if constexpr (phase == 6) fingerprint_group(context);
  if constexpr (phase == 7) fingerprint_tensor_ticket(context);
  if constexpr (phase == 8) fingerprint_tensor(context);
}

/// Whether the block goes on after `phase`. The answer is the same for all of its threads.
LOCKSTEP_HOST_DEVICE bool fingerprint_goes_on(uint32_t phase, const FingerprintShared& shared) {
  return (phase != 5 && phase != 7) || shared.last != 0;
}

}  // namespace lockstep::cuda
