#include "shell/processes/last_output.h"

#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "protocol/descriptor.h"
#include "protocol/error.h"

namespace lockstep::shell {
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
      rest[i] = read_at(channel.log, static_cast<size_t>(status.st_size - received_[i]), received_[i]);
    int waiting = 0;
    if (::ioctl(channel.read, FIONREAD, &waiting) != 0) continue;
    std::string in_pipe(static_cast<size_t>(waiting), '\0');
    in_pipe.resize(static_cast<size_t>(std::max<ssize_t>(read_all(channel.read, in_pipe.data(), in_pipe.size()), 0)));
    rest[i] += in_pipe;
  }
  protocol::close_output_channels(channels_);
  return rest;
}

}  // namespace lockstep::shell
