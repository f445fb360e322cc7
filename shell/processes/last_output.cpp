#include "shell/processes/last_output.h"

#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "protocol/error.h"

namespace lockstep::shell {
namespace {

/// Appends `count` bytes from where `read_at(buffer, size)` reads; fewer when it has no more.
template <typename ReadAt>
void append(std::string& text, int64_t count, const ReadAt& read_at) {
  const size_t before = text.size();
  text.resize(before + static_cast<size_t>(count));
  int64_t done = 0;
  while (done < count) {
    const ssize_t n = read_at(text.data() + before + done, static_cast<size_t>(count - done), done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    done += n;
  }
  text.resize(before + static_cast<size_t>(done));
}

}  // namespace

LastOutput::LastOutput() {
  try {
    channels_ = protocol::make_output_channels();
  } catch (const std::system_error& error) {
    throw StartError(error.what());
  }
}

std::vector<int> LastOutput::descriptors() const {
  std::vector<int> all;
  for (const auto& channel : channels_) all.insert(all.end(), {channel.read, channel.write, channel.log});
  return all;
}

void LastOutput::close_writing_ends() {
  for (auto& channel : channels_) ::close(std::exchange(channel.write, -1));
}

void LastOutput::received(Stream stream, size_t bytes) {
  received_[protocol::index_of(stream)] += static_cast<int64_t>(bytes);
}

std::array<std::string, 2> LastOutput::take() {
  std::array<std::string, 2> rest;
  for (size_t i = 0; i < rest.size(); ++i) {
    const auto& channel = channels_[i];
    struct stat status = {};
    // The log ends earlier than what was received where the worker had to go on without it.
    if (::fstat(channel.log, &status) == 0 && status.st_size > received_[i])
      append(rest[i], status.st_size - received_[i],
             [&](char* to, size_t size, int64_t done) { return ::pread(channel.log, to, size, received_[i] + done); });
    int waiting = 0;
    if (::ioctl(channel.read, FIONREAD, &waiting) == 0)
      append(rest[i], waiting, [&](char* to, size_t size, int64_t) { return ::read(channel.read, to, size); });
  }
  protocol::close_output_channels(channels_);
  return rest;
}

}  // namespace lockstep::shell
