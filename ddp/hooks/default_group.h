// The group that wrappers, hooks and helpers use by default.
#pragma once
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

namespace lockstep::ddp {

/// Returns dist's default group. Throws Error if there is none, with the call that makes one.
c10::intrusive_ptr<c10d::ProcessGroup> default_group();

}  // namespace lockstep::ddp
