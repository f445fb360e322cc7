#include "protocol/output_channel.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <system_error>
#include <utility>

namespace lockstep::protocol {
namespace {

// A larger pipe lets a cell that prints a lot go on while the I/O thread is busy. Where the system's limit for the user
// is reached, the default stays.
constexpr int kPipeBytes = 1 << 20;

/// Has the order of the text.
std::array<int*, 3> fields(OutputChannel& channel) { return {&channel.read, &channel.write, &channel.log}; }

}  // namespace

OutputChannels make_output_channels() {
  OutputChannels channels;
  const auto fail = [&](const char* what) {
    const int error = errno;
    close_output_channels(channels);
    throw std::system_error(error, std::generic_category(), what);
  };
  for (size_t i = 0; i < channels.size(); ++i) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) fail("no pipe could be made for the output of cells (ulimit -n)");
    channels[i].read = ends[0];
    channels[i].write = ends[1];
    (void)::fcntl(ends[1], F_SETPIPE_SZ, kPipeBytes);
    // Only our end does not block: the writers of a full pipe have to wait.
    if (::fcntl(ends[0], F_SETFL, O_NONBLOCK) != 0) fail("the output of cells could not be captured");
    channels[i].log = ::memfd_create(to_string(kStreams[i]).data(), MFD_CLOEXEC);
    if (channels[i].log < 0) fail("no memory file could be made for the output of cells (ulimit -n)");
  }
  return channels;
}

void close_output_channels(OutputChannels& channels) {
  for (OutputChannel& channel : channels)
    for (int* fd : fields(channel))
      if (*fd >= 0) ::close(std::exchange(*fd, -1));
}

std::string output_channels_text(const OutputChannels& channels) {
  std::string text;
  for (OutputChannel channel : channels) {
    if (!text.empty()) text += ' ';
    const auto numbers = fields(channel);
    for (size_t i = 0; i < numbers.size(); ++i) text += (i ? "," : "") + std::to_string(*numbers[i]);
  }
  return text;
}

std::optional<OutputChannels> parse_output_channels(std::string_view text) {
  OutputChannels channels;
  const char *at = text.data(), *end = at + text.size();
  bool first = true;
  for (OutputChannel& channel : channels)
    for (int* fd : fields(channel)) {
      if (!std::exchange(first, false)) {
        if (at == end || (*at != ',' && *at != ' ')) return std::nullopt;
        ++at;
      }
      const auto [rest, error] = std::from_chars(at, end, *fd);
      if (error != std::errc() || *fd < 0 || ::fcntl(*fd, F_GETFD) < 0) return std::nullopt;
      at = rest;
    }
  return at == end ? std::optional(channels) : std::nullopt;
}

}  // namespace lockstep::protocol
