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
namespace {

// More than ranks may have sent without a confirmation, which is what the log holds.
constexpr int64_t kLastOfLog = 2 << 20;

}  // namespace

std::string LeftOutput::after(int64_t received) const {
  // The log ends earlier than what was received where the worker had to go on without it.
  const auto missing = static_cast<size_t>(std::max<int64_t>(end - received, 0));
  return log.substr(log.size() - std::min(log.size(), missing)) + pipe;
}

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

std::array<LeftOutput, 2> LastOutput::take(const std::optional<std::array<int64_t, 2>>& received) {
  std::array<LeftOutput, 2> left;
  for (size_t i = 0; i < left.size(); ++i) {
    const auto& channel = channels_[i];
    struct stat status = {};
    if (::fstat(channel.log, &status) == 0) left[i].end = status.st_size;
    const int64_t begin = received ? (*received)[i] : std::max<int64_t>(left[i].end - kLastOfLog, 0);
    if (left[i].end > begin) left[i].log = read_at(channel.log, static_cast<size_t>(left[i].end - begin), begin);
    int waiting = 0;
    if (::ioctl(channel.read, FIONREAD, &waiting) != 0) continue;
    std::string& pipe = left[i].pipe;
    pipe.resize(static_cast<size_t>(waiting));
    pipe.resize(static_cast<size_t>(std::max<ssize_t>(read_all(channel.read, pipe.data(), pipe.size()), 0)));
  }
  protocol::close_output_channels(channels_);
  return left;
}

}  // namespace lockstep::shell
