#include "worker/output_pipes.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <iostream>
#include <system_error>

namespace lockstep::worker {
namespace {

// A larger pipe lets a cell that prints a lot go on while the I/O thread is busy. Where the system's limit for the user
// is reached, the default stays.
constexpr int kPipeBytes = 1 << 20;

[[noreturn]] void fail(const char* what) { throw std::system_error(errno, std::generic_category(), what); }

}  // namespace

OutputPipes::OutputPipes() {
  const int null = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (null < 0 || ::dup2(null, STDIN_FILENO) < 0) fail("/dev/null could not become the standard input");
  ::close(null);
  std::fflush(nullptr);
  for (const int stream : {kStdout, kStderr}) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) fail("no pipe could be made for the output of cells");
    (void)::fcntl(ends[1], F_SETPIPE_SZ, kPipeBytes);
    // Only our end: the writers of a full pipe have to wait.
    if (::fcntl(ends[0], F_SETFL, O_NONBLOCK) != 0) fail("the output of cells could not be captured");
    if (::dup2(ends[1], stream == kStdout ? STDOUT_FILENO : STDERR_FILENO) < 0)
      fail("the output of cells could not be captured");
    ::close(ends[1]);
    read_[stream] = ends[0];
  }
  std::setvbuf(stdout, nullptr, _IONBF, 0);
  std::setvbuf(stderr, nullptr, _IONBF, 0);
}

OutputPipes::Mark OutputPipes::written() const {
  Mark mark;
  for (const int stream : {kStdout, kStderr}) {
    int waiting = 0;
    if (::ioctl(read_[stream], FIONREAD, &waiting) != 0) waiting = 0;
    mark[stream] = bytes_read_[stream] + waiting;
  }
  return mark;
}

size_t OutputPipes::read(Stream stream, size_t limit, std::string& bytes) {
  const size_t before = bytes.size();
  bytes.resize(before + limit);
  ssize_t n;
  do n = ::read(read_[stream], bytes.data() + before, limit);
  while (n < 0 && errno == EINTR);
  if (n > 0) bytes_read_[stream] += n;
  bytes.resize(before + (n > 0 ? static_cast<size_t>(n) : 0));
  return n > 0 ? static_cast<size_t>(n) : 0;
}

void flush_standard_streams() {
  std::cout.flush();
  std::cerr.flush();
  std::clog.flush();
  std::fflush(stdout);
  std::fflush(stderr);
}

}  // namespace lockstep::worker
