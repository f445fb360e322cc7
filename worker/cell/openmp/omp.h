// <omp.h> of cells: the one of GCC, since LibTorch's runtime is GNU's and Clang's describes the locks of another one.
#pragma once
// Clang can't read the attribute that names a deallocator.
#define __malloc__(deallocator)
#include_next <omp.h>
#undef __malloc__
