// Whether the calling thread is in the body of a parallel loop, where an exception would end the process or be lost.
#pragma once

namespace lockstep::worker {

/// Returns true in at::parallel_for or an OpenMP region.
bool in_parallel_region();

}  // namespace lockstep::worker
