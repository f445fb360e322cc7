// liblockstep_interpose replaces functions of the C library that LibTorch and Gloo call by functions that ask
// liblockstep first. It is a library of its own, because a function that it replaces is replaced in the whole program.
// lockstep-worker links it; another program that uses liblockstep gets it only when it asks (Lockstep::interpose in
// CMake, or LD_PRELOAD). docs/dist.md has a table of what each function is for, and of what a program without it does
// not get.
#pragma once
#include <sys/socket.h>
#include <sys/uio.h>

namespace lockstep::interpose {

/// Hooks are what the replaced functions call. Each has the arguments of its function, and `real`, the C library's.
struct Hooks {
  int (*connect)(int fd, const sockaddr* address, socklen_t size, decltype(&::connect) real);
  int (*listen)(int fd, int backlog, decltype(&::listen) real) noexcept;
  int (*accept)(int fd, sockaddr* address, socklen_t* size, decltype(&::accept) real);
  int (*accept4)(int fd, sockaddr* address, socklen_t* size, int flags, decltype(&::accept4) real);
  ssize_t (*writev)(int fd, const iovec* parts, int count, decltype(&::writev) real);
};

}  // namespace lockstep::interpose

/// From now on the replaced functions call `hooks`, which must live as long as the process. Until then they are the C
/// library's. getnameinfo needs no hook. liblockstep calls this when it is loaded, if the library is in the process.
extern "C" void lockstep_interpose_set_hooks(const lockstep::interpose::Hooks* hooks) noexcept;
