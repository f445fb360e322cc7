// Finds the function that one of this program or library stands in front of.
#pragma once
#include <dlfcn.h>

#include <algorithm>
#include <cstddef>

namespace lockstep {

/// The name of a function, as an argument of a template.
template <size_t size>
struct FunctionName {
  char text[size];
  // NOLINTNEXTLINE(google-explicit-constructor): a literal becomes one
  constexpr FunctionName(const char (&name)[size]) { std::ranges::copy(name, text); }
};

template <FunctionName name, typename Function>
Function* find_next_function() {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name.text));
}

/// dlsym takes the lock of the dynamic loader. At a call it could wait for ever: for a constructor of a library that is
/// being loaded, which in turn waits for the thread that has called. The program therefore looks when it starts.
template <FunctionName name, typename Function>
inline Function* const next_function_at_start = find_next_function<name, Function>();

/// Returns the function of that mangled name that comes next in the order of libraries.
template <FunctionName name, typename Function>
Function* next_function() {
  Function* const found = next_function_at_start<name, Function>;
  return found ? found : find_next_function<name, Function>();  // a constructor of a library calls before the start
}

}  // namespace lockstep
