// Asks the few things that the worker wants of LibTorch, for files that need none of its headers.
#pragma once
#include <string>

namespace lockstep::worker {

std::string libtorch_version();     // "2.11.0", of the library that is loaded
std::string libtorch_built_with();  // of the headers
void set_libtorch_threads(int threads);
/// Makes LibTorch do what it does at its first operation, in one thread.
void warm_up_libtorch();
/// Calls dist::barrier() over all ranks.
void barrier();

}  // namespace lockstep::worker
