// Finds what an operator divides by to make a loss: the number of samples that a rank averages over, or a number that
// the program passed.
#pragma once
#include <c10/util/ArrayRef.h>

#include "inspectors/trace/op_trace.h"

namespace lockstep::inspect {

/// Returns it for operators that make one number: `mean`, a loss whose reduction is the mean (without targets at
/// `ignore_index`, with class weights), `div` and `mul` by a number (for `mul` the inverse of the number). 0 for all
/// others. Reads targets, weights and tensors of one element on the CPU; it does not wait for other devices. Local.
double divisor_of(const RunningOp& op, c10::ArrayRef<c10::IValue> inputs);

}  // namespace lockstep::inspect
