// Puts the worker's read, poll, waitpid and their like in front of the C library's: where the run thread waits in them, and
// a cell has called them, an interrupt ends the wait with an exception. On other threads, and for callers within
// libraries, they are the C library's.
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "protocol/next_function.h"
#include "worker/process/endable_call.h"
#include "worker/process/interrupt.h"

using namespace lockstep::worker;
using lockstep::next_function;

// The C library's headers say of some of them that they throw nothing, so the functions have names of their own here.
#define LOCKSTEP_BLOCKING(Result, name, parameters, arguments)    \
  Result lockstep_##name parameters __asm__(#name);               \
  Result lockstep_##name parameters {                             \
    auto* const real = next_function<#name, Result parameters>(); \
    return endable_call([&] { return real arguments; });          \
  }

namespace {

/// Waits until `file` has something to read, or has ended, as far as that can be waited for: what its buffer holds is
/// there. A read that the C library makes to complete a line waits as ever, since what it has read would be lost.
void wait_for_input(FILE* file) {
  if (!on_run_thread() || !file || file->_IO_read_ptr < file->_IO_read_end) return;
  const int fd = ::fileno(file);
  if (fd < 0 || (::fcntl(fd, F_GETFL) & O_NONBLOCK) != 0) return;
  pollfd item{fd, POLLIN, 0};
  const int error = errno;
  while (::poll(&item, 1, -1) < 0 && errno == EINTR) {
  }
  errno = error;
}

}  // namespace

#define LOCKSTEP_READING(Result, name, parameters, arguments, file) \
  Result lockstep_##name parameters __asm__(#name);                 \
  Result lockstep_##name parameters {                               \
    auto* const real = next_function<#name, Result parameters>();   \
    wait_for_input(file);                                           \
    return real arguments;                                          \
  }

extern "C" {

LOCKSTEP_BLOCKING(ssize_t, read, (int fd, void* bytes, size_t size), (fd, bytes, size))
LOCKSTEP_BLOCKING(ssize_t, readv, (int fd, const iovec* parts, int count), (fd, parts, count))
LOCKSTEP_BLOCKING(ssize_t, write, (int fd, const void* bytes, size_t size), (fd, bytes, size))
LOCKSTEP_BLOCKING(ssize_t, writev, (int fd, const iovec* parts, int count), (fd, parts, count))

LOCKSTEP_BLOCKING(ssize_t, recv, (int fd, void* bytes, size_t size, int flags), (fd, bytes, size, flags))
LOCKSTEP_BLOCKING(ssize_t, recvfrom, (int fd, void* bytes, size_t size, int flags, sockaddr* from, socklen_t* length),
                  (fd, bytes, size, flags, from, length))
LOCKSTEP_BLOCKING(ssize_t, recvmsg, (int fd, msghdr* message, int flags), (fd, message, flags))
LOCKSTEP_BLOCKING(ssize_t, send, (int fd, const void* bytes, size_t size, int flags), (fd, bytes, size, flags))
LOCKSTEP_BLOCKING(ssize_t, sendto,
                  (int fd, const void* bytes, size_t size, int flags, const sockaddr* to, socklen_t length),
                  (fd, bytes, size, flags, to, length))
LOCKSTEP_BLOCKING(ssize_t, sendmsg, (int fd, const msghdr* message, int flags), (fd, message, flags))
LOCKSTEP_BLOCKING(int, accept, (int fd, sockaddr* from, socklen_t* length), (fd, from, length))
LOCKSTEP_BLOCKING(int, accept4, (int fd, sockaddr* from, socklen_t* length, int flags), (fd, from, length, flags))
LOCKSTEP_BLOCKING(int, connect, (int fd, const sockaddr* to, socklen_t length), (fd, to, length))

LOCKSTEP_BLOCKING(int, poll, (pollfd * items, nfds_t count, int limit_ms), (items, count, limit_ms))
LOCKSTEP_BLOCKING(int, ppoll, (pollfd * items, nfds_t count, const timespec* limit, const sigset_t* mask),
                  (items, count, limit, mask))
LOCKSTEP_BLOCKING(int, select, (int count, fd_set* in, fd_set* out, fd_set* other, timeval* limit),
                  (count, in, out, other, limit))
LOCKSTEP_BLOCKING(int, pselect,
                  (int count, fd_set* in, fd_set* out, fd_set* other, const timespec* limit, const sigset_t* mask),
                  (count, in, out, other, limit, mask))
LOCKSTEP_BLOCKING(int, epoll_wait, (int fd, epoll_event* events, int count, int limit_ms),
                  (fd, events, count, limit_ms))
LOCKSTEP_BLOCKING(int, epoll_pwait, (int fd, epoll_event* events, int count, int limit_ms, const sigset_t* mask),
                  (fd, events, count, limit_ms, mask))

LOCKSTEP_BLOCKING(pid_t, wait, (int* status), (status))
LOCKSTEP_BLOCKING(pid_t, waitpid, (pid_t child, int* status, int options), (child, status, options))
LOCKSTEP_BLOCKING(pid_t, wait4, (pid_t child, int* status, int options, rusage* usage), (child, status, options, usage))
LOCKSTEP_BLOCKING(int, waitid, (idtype_t kind, id_t id, siginfo_t* info, int options), (kind, id, info, options))

LOCKSTEP_BLOCKING(int, flock, (int fd, int operation), (fd, operation))
LOCKSTEP_BLOCKING(int, lockf, (int fd, int operation, off_t size), (fd, operation, size))
LOCKSTEP_BLOCKING(int, pause, (), ())
LOCKSTEP_BLOCKING(FILE*, fopen, (const char* path, const char* mode), (path, mode))
LOCKSTEP_BLOCKING(FILE*, fopen64, (const char* path, const char* mode), (path, mode))

LOCKSTEP_READING(char*, fgets, (char* line, int size, FILE* file), (line, size, file), file)
LOCKSTEP_READING(int, fgetc, (FILE * file), (file), file)
LOCKSTEP_READING(int, getc, (FILE * file), (file), file)
LOCKSTEP_READING(size_t, fread, (void* bytes, size_t size, size_t count, FILE* file), (bytes, size, count, file), file)
LOCKSTEP_READING(ssize_t, getline, (char** line, size_t* size, FILE* file), (line, size, file), file)
LOCKSTEP_READING(ssize_t, getdelim, (char** line, size_t* size, int end, FILE* file), (line, size, end, file), file)

/// A file that is opened can be a pipe, whose other end nobody has opened. The third argument is the mode of a file that
/// is made; the kernel ignores it otherwise.
int lockstep_open(const char* path, int flags, mode_t mode) __asm__("open");
int lockstep_open64(const char* path, int flags, mode_t mode) __asm__("open64");
int lockstep_open(const char* path, int flags, mode_t mode) {
  auto* const real = next_function<"open", int(const char*, int, ...)>();
  return endable_call([&] { return real(path, flags, mode); });
}
int lockstep_open64(const char* path, int flags, mode_t mode) { return lockstep_open(path, flags, mode); }

/// Waits for locks only. The third argument is a number or a pointer.
int lockstep_fcntl(int fd, int command, long argument) __asm__("fcntl");
int lockstep_fcntl64(int fd, int command, long argument) __asm__("fcntl64");
int lockstep_fcntl(int fd, int command, long argument) {
  auto* const real = next_function<"fcntl", int(int, int, ...)>();
  if (command != F_SETLKW && command != F_OFD_SETLKW) return real(fd, command, argument);
  return endable_call([&] { return real(fd, command, argument); });
}
int lockstep_fcntl64(int fd, int command, long argument) { return lockstep_fcntl(fd, command, argument); }
}
