// Copies of a process, as fork() makes them. Their parent may be another process than the one that makes them.
#pragma once
#include <sys/types.h>

namespace lockstep {

/// Starts a copy of this process, which has one thread: returns 0 in the copy and its pid here, or -1 and errno where there
/// are too many processes, or no memory. The copy's parent is `parent`, which is this process or its parent; the copy gets
/// SIGKILL when that one ends.
pid_t start_copy(pid_t parent);

/// Returns where the C library keeps the number of the main thread, by which it knows who holds a mutex; null where the
/// kernel does not say. On such kernels a copy keeps the thread number of the original.
pid_t* thread_number_address();

}  // namespace lockstep
