// Loads the shared libraries of %lib.
#include <dlfcn.h>

#include <cstdio>
#include <stdexcept>
#include <string>

/// worker/cell/cell.h declares it.
extern "C" void __lockstep_load_library(const char* library) __asm__("lockstep_cell_load_library");

void __lockstep_load_library(const char* library) {
  if (::dlopen(library, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD)) {
    std::fprintf(stderr, "%s is loaded already; a new build of it is used after %%dist_reset\n", library);
    return;
  }
  if (::dlopen(library, RTLD_NOW | RTLD_GLOBAL)) return;
  const char* error = ::dlerror();
  throw std::runtime_error(std::string("the library can't be loaded: ") + (error ? error : library));
}
