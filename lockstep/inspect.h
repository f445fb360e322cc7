// lockstep::inspect answers questions about a run on several ranks: whether replicas, gradients and data agree, where a
// NaN comes from, where time and memory go. docs/inspectors.md describes it.
#pragma once
#include "inspectors/inspect.h"
