// Finds the function that a function of the worker stands in front of.
#pragma once
#include <dlfcn.h>

namespace lockstep::worker {

template <typename Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

}  // namespace lockstep::worker
