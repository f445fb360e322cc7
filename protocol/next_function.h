// Finds the function of a system library that a function of this program, or of this library, stands in front of.
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

// Hidden: what is next is not the same for a library and for the program that is linked with it.
#define LOCKSTEP_OF_THIS_LIBRARY __attribute__((visibility("hidden")))

template <FunctionName name, typename Function, FunctionName version>
LOCKSTEP_OF_THIS_LIBRARY Function* find_next_function() {
  void* found = nullptr;
  if (version.text[0] != '\0') found = ::dlvsym(RTLD_NEXT, name.text, version.text);
  return reinterpret_cast<Function*>(found ? found : ::dlsym(RTLD_NEXT, name.text));
}

/// dlsym takes the lock of the dynamic loader. At a call it could wait for ever: for a constructor of a library that is
/// being loaded, which in turn waits for the thread that has called. The program therefore looks when it starts.
template <FunctionName name, typename Function, FunctionName version>
LOCKSTEP_OF_THIS_LIBRARY inline Function* const next_function_at_start = find_next_function<name, Function, version>();

/// Returns the function of that mangled name that comes next in the order of libraries. `version`: that of a function of
/// which the C library has several; dlsym before glibc 2.36 gives the oldest. Other platforms may have one, without it.
template <FunctionName name, typename Function, FunctionName version = "">
LOCKSTEP_OF_THIS_LIBRARY Function* next_function() {
  Function* const found = next_function_at_start<name, Function, version>;
  return found ? found
               : find_next_function<name, Function, version>();  // a constructor of a library calls before the start
}

}  // namespace lockstep
