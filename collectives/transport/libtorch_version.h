// What differs between the LibTorch versions 2.11 to 2.15, in one place: which virtual functions a decorator of
// c10d::Backend and c10d::Work has to forward, names that have changed, and kinds of tensors that are gone.
#pragma once
#include <torch/headeronly/version.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#define LOCKSTEP_LIBTORCH_AT_LEAST(major, minor) \
  (TORCH_VERSION_MAJOR > (major) || (TORCH_VERSION_MAJOR == (major) && TORCH_VERSION_MINOR >= (minor)))

#if !LOCKSTEP_LIBTORCH_AT_LEAST(2, 11) || LOCKSTEP_LIBTORCH_AT_LEAST(2, 16)
#error "Lockstep supports LibTorch 2.11 to 2.15"
#endif

// Backend: suspend, resume, getMemoryStats
#define LOCKSTEP_C10D_HAS_SUSPEND LOCKSTEP_LIBTORCH_AT_LEAST(2, 12)
// Backend: gather_single, addEphemeralTimeout, windows, abort hooks, reconfigure. Work: getTimeout
#define LOCKSTEP_C10D_HAS_WINDOW LOCKSTEP_LIBTORCH_AT_LEAST(2, 14)
// Backend: isInitialized, time estimates, completion hooks. Work: getCompletionKey
#define LOCKSTEP_C10D_HAS_COMPLETION_HOOKS LOCKSTEP_LIBTORCH_AT_LEAST(2, 15)
// DeviceGuardImplInterface: isStreamCapturing
#define LOCKSTEP_C10_HAS_STREAM_CAPTURING LOCKSTEP_LIBTORCH_AT_LEAST(2, 15)
// Tensor: has_names, rename. 2.13 removed named dimensions.
#define LOCKSTEP_ATEN_HAS_NAMED_DIMENSIONS (!LOCKSTEP_LIBTORCH_AT_LEAST(2, 13))

// ProcessGroup: the single-tensor collectives have new names from 2.14 on, and using the old ones warns.
#if LOCKSTEP_LIBTORCH_AT_LEAST(2, 14)
#define LOCKSTEP_C10D_ALL_GATHER_SINGLE all_gather_single
#define LOCKSTEP_C10D_REDUCE_SCATTER_SINGLE reduce_scatter_single
#define LOCKSTEP_C10D_ALL_TO_ALL_SINGLE all_to_all_single
#else
#define LOCKSTEP_C10D_ALL_GATHER_SINGLE _allgather_base
#define LOCKSTEP_C10D_REDUCE_SCATTER_SINGLE _reduce_scatter_base
#define LOCKSTEP_C10D_ALL_TO_ALL_SINGLE alltoall_base
#endif
