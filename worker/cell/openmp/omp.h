// <omp.h> of cells: the one of GCC, since LibTorch's runtime is GNU's and Clang's describes the locks of another one.
#pragma once
// Clang can't read the attribute that names a deallocator.
#define __malloc__(deallocator)
#if !__has_include(LOCKSTEP_GCC_OMP_H)
#error <omp.h> is the one of GCC, which is not in /usr/lib/gcc: install g++
#endif
#include LOCKSTEP_GCC_OMP_H  // a path, which the compiler of cells passes
#undef __malloc__
