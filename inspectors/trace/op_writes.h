// Says what an operator does to the values of its arguments and results. Schemas and tags of LibTorch say which
// arguments are written, and what only gets another shape. The lists here have what these do not say.
#pragma once
#include <cstddef>
#include <string_view>

#include "inspectors/trace/op_trace.h"

namespace lockstep::inspect {

/// Whether the operator of this name writes all of its target, which is the first argument, and reads none of it:
/// "copy_", "zero_", "normal_".
bool overwrites_target(std::string_view name);

/// Whether the operator writes all of an argument and reads none of it: its target, or an `out`.
bool overwrites(const RunningOp& op, size_t argument);

/// Whether a result is an argument that the operator has written, in place or as an `out`. One that has got another
/// shape (`t_`) or other memory (`set_`) has not been written.
bool writes_in_place(const RunningOp& op);

/// Whether the operator of this name leaves values in its result that nobody has written: "empty_like", "resize_".
bool leaves_memory_unset(std::string_view name);

/// Whether the operator writes an argument, a running statistic, that it does not return and that its schema calls read.
bool updates_statistic(std::string_view name, size_t argument);

}  // namespace lockstep::inspect
