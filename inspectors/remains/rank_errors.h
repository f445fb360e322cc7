// Tells what the exception of a rank says of its cause.
#pragma once
#include "inspectors/remains/remains.h"

namespace lockstep::inspect::judging {

/// Whether a rank raises it that has compared its call with those of the other ranks (dist::CollectiveMismatch).
bool is_mismatch(const RankError& error);

/// Whether Gloo ends a process with it that is sent more bytes than its collective takes: the ranks' calls differ.
bool is_size_mismatch(const RankError& error);

/// Whether ranks have the error because another one left, or did not come.
bool is_consequence(const RankError& error);

}  // namespace lockstep::inspect::judging
