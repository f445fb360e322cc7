// Puts the worker's __cxa_demangle in front of the C++ library's: LibTorch, the C++ library and user code demangle
// names of cells for their messages, and these carry the tag of the cell and the compiler's own namespaces, which
// people have not written.
#include <cxxabi.h>

#include <cstring>

#include "protocol/next_function.h"
#include "worker/process/demangle.h"

// The buffer is the caller's or malloc's; cleaning only shortens what is in it.
extern "C" char* __cxa_demangle(const char* mangled, char* buffer, size_t* length, int* status) {
  auto* const real = lockstep::next_function<"__cxa_demangle", decltype(abi::__cxa_demangle)>();
  int result = 0;
  char* text = real(mangled, buffer, length, &result);
  if (status) *status = result;
  if (text && result == 0) text[lockstep::worker::clean_name(text, std::strlen(text))] = '\0';
  return text;
}
