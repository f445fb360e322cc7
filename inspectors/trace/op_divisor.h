// By what an operator divides to make a loss: the number of samples that a rank averages over, or a number that the
// program gave.
#pragma once
#include <c10/util/ArrayRef.h>

#include "inspectors/trace/op_trace.h"

namespace lockstep::inspect {

/// Of an operator that makes one number: `mean`, a loss whose reduction is the mean (targets at `ignore_index` left
/// out, class weights taken in), `div` and `mul` by a number (the latter as its inverse). 0: it divides by nothing that
/// is known here. Reads targets, weights and tensors of one element on the CPU; those of other devices are not waited
/// for. Local.
double divisor_of(const RunningOp& op, c10::ArrayRef<c10::IValue> inputs);

}  // namespace lockstep::inspect
