// Questions about a run on several ranks: whether replicas, gradients and data agree, where a NaN comes from, where
// time and memory go: lockstep::inspect. docs/inspectors.md.
#pragma once
#include "inspectors/inspect.h"
