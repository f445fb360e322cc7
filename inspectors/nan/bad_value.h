// The values that the watch for NaN and Inf checks, a bad one that it finds, and the finding about that.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "inspectors/trace/tensor_names.h"
#include "protocol/rank_set.h"

namespace lockstep::inspect {

struct WatchedValue {
  enum class Role {
    loss,
    gradient,  // before the reduction
    reduced_gradient,  // that the optimizer has used
    parameter,  // that it has written
  };
  Role role = Role::gradient;
  at::Tensor parameter;  // undefined for a loss
  at::Tensor loss;  // on a device
  std::string op;  // that made the loss, or wrote the parameter
};

struct BadValue {
  enum class Kind { nan, inf, unknown };
  WatchedValue value;
  Kind kind = Kind::unknown;
  int64_t step = 0;  // as the user counts
  RankSet ranks;
  bool finite_before = true;  // of a reduced gradient: on every rank, before the reduction
  at::Tensor values;  // of a check at once: where the numbers still are; undefined for a loss
  std::string where;  // of a check at once: the line that the program is at
};

/// Publishes the finding about `bad`, which names parameters by `names`.
void publish_bad_value(const BadValue& bad, const TensorNames& names);

}  // namespace lockstep::inspect
