#include "worker/process/output_pipes.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <iostream>
#include <system_error>

#include "protocol/descriptor.h"

namespace lockstep::worker {
namespace {

constexpr int64_t kPage = 4096;
constexpr std::array kIndices = {protocol::index_of(Stream::standard_output),
                                 protocol::index_of(Stream::standard_error)};

[[noreturn]] void fail(const char* what) { throw std::system_error(errno, std::generic_category(), what); }

}  // namespace

OutputPipes::OutputPipes(const protocol::OutputChannels& channels) : channels_(channels) {
  if (const Descriptor null(::open("/dev/null", O_RDONLY | O_CLOEXEC)); ::dup2(null.get(), STDIN_FILENO) < 0)
    fail("/dev/null could not become the standard input");
  std::fflush(nullptr);
  for (const Stream stream : protocol::kStreams) {
    auto& channel = channels_[protocol::index_of(stream)];
    if (::dup2(channel.write, stream == Stream::standard_output ? STDOUT_FILENO : STDERR_FILENO) < 0)
      fail("the output of cells could not be captured");
    ::close(std::exchange(channel.write, -1));
    // Inherited descriptors are open across exec: programs that cells start have no use for them.
    for (const int fd : {channel.read, channel.log}) ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  }
  std::setvbuf(stdout, nullptr, _IONBF, 0);
  std::setvbuf(stderr, nullptr, _IONBF, 0);
}

OutputPipes::Mark OutputPipes::written() const {
  Mark mark;
  for (const size_t stream : kIndices) {
    int waiting = 0;
    if (::ioctl(channels_[stream].read, FIONREAD, &waiting) != 0) waiting = 0;
    mark[stream] = bytes_read_[stream] + waiting;
  }
  return mark;
}

/// Returns -1 where the log takes nothing more (ulimit -f, no memory): nothing has left the pipe then.
ssize_t OutputPipes::move_to_log(Stream stream, size_t limit, std::string& bytes) {
  const auto& channel = channels_[protocol::index_of(stream)];
  const int64_t start = bytes_read(stream);
  loff_t end = start;
  const ssize_t moved =
      uninterrupted([&] { return ::splice(channel.read, nullptr, channel.log, &end, limit, SPLICE_F_NONBLOCK); });
  if (moved < 0) return errno == EAGAIN ? 0 : -1;
  const std::string text = read_at(channel.log, static_cast<size_t>(moved), start);
  if (std::ssize(text) != moved) fail("the log of the output could not be read");
  bytes += text;
  return moved;
}

size_t OutputPipes::read(Stream stream, size_t limit, std::string& bytes) {
  auto& channel = channels_[protocol::index_of(stream)];
  ssize_t n = channel.log >= 0 ? move_to_log(stream, limit, bytes) : -1;
  if (n < 0) {
    // There is no log from here on: a death may lose what is on its way.
    if (channel.log >= 0) ::close(std::exchange(channel.log, -1));
    const size_t before = bytes.size();
    read_some(channel.read, bytes, limit);
    n = static_cast<ssize_t>(bytes.size() - before);
  }
  if (n == 0) return 0;
  bytes_read_[protocol::index_of(stream)] += n;
  unconfirmed_.emplace_back(stream, n);
  return static_cast<size_t>(n);
}

void OutputPipes::confirm(int64_t count) {
  while (count > 0 && !unconfirmed_.empty()) {
    auto& [stream, bytes] = unconfirmed_.front();
    const int64_t now = std::min(count, bytes);
    count -= now;
    bytes -= now;
    confirmed_[protocol::index_of(stream)] += now;
    if (bytes == 0) unconfirmed_.pop_front();
  }
  for (const size_t stream : kIndices) {
    const int64_t end = confirmed_[stream] / kPage * kPage;
    if (end <= cut_[stream] || channels_[stream].log < 0) continue;
    (void)::fallocate(channels_[stream].log, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, cut_[stream],
                      end - cut_[stream]);
    cut_[stream] = end;
  }
}

}  // namespace lockstep::worker
