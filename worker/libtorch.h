// The few functions of LibTorch that the worker uses, for files that include none of its headers.
#pragma once
#include <string>

namespace lockstep::worker {

std::string libtorch_version();     // "2.11.0", of the library that is loaded
std::string libtorch_built_with();  // of the headers
void set_libtorch_threads(int threads);
int libtorch_threads();
/// Makes LibTorch initialise what its first operation would, in one thread.
void warm_up_libtorch();
/// Calls dist::barrier() over all ranks.
void barrier();

}  // namespace lockstep::worker
