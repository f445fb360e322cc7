// The functions of dist:: end here: an operation without async_op is waited for.
#pragma once
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>

#include "collectives/work.h"

namespace lockstep::dist {

/// `label` is what errors call the operation.
inline Work finish(c10::intrusive_ptr<c10d::Work> work, bool async_op, const char* label) {
  if (!async_op) work->wait();
  return Work(std::move(work), label);
}

}  // namespace lockstep::dist
