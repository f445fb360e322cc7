// Messages over a connected stream socket: a JSON header and binary frames. Blocking, for one thread at a time.
// Wire: u32 number of frames, u64 length of the header, u64 length of each frame; then the header and the frames.
// Little endian.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::protocol {

struct PipeMessage {
  nlohmann::json header;
  std::vector<std::string> frames;
};

/// Writes all of it. Throws ChannelError when the other end is gone (never raises SIGPIPE).
void send_message(int fd, const PipeMessage& message);

/// Reads one message; nothing when the other end has closed between messages. Throws ChannelError on anything cut
/// short.
std::optional<PipeMessage> receive_message(int fd);

}  // namespace lockstep::protocol
