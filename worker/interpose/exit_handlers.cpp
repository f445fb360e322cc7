// Gives cells atexit, at_quick_exit and pthread_atfork. The C library keeps them in the part of it that is linked into
// each object (libc_nonshared.a), and objects of cells are linked with nothing: they find these. Registered is for the
// process's end: a cell that has run is never unloaded.
#include <pthread.h>

#include <cstdlib>

extern "C" {

int __cxa_atexit(void (*function)(void*), void* argument, void* object) noexcept;
int __cxa_at_quick_exit(void (*function)(void*), void* object) noexcept;
int __register_atfork(void (*prepare)(), void (*parent)(), void (*child)(), void* object) noexcept;

int atexit(void (*function)()) noexcept {
  const auto call = [](void* registered) { reinterpret_cast<void (*)()>(registered)(); };
  return __cxa_atexit(call, reinterpret_cast<void*>(function), nullptr);
}

int pthread_atfork(void (*prepare)(), void (*parent)(), void (*child)()) noexcept {
  return __register_atfork(prepare, parent, child, nullptr);
}
}

// The C library's header declares it with the linkage of C++ and this name.
int at_quick_exit(void (*function)()) noexcept {
  // It is called with an argument that it does not look at, as the C library's own does it.
  return __cxa_at_quick_exit(reinterpret_cast<void (*)(void*)>(reinterpret_cast<void*>(function)), nullptr);
}
