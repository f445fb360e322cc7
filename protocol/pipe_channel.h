// Sends messages over a connected stream socket: a JSON header and binary frames, for one thread at a time.
// send_message and receive_message block; wire_bytes and MessageAssembler are for callers that must not.
// Wire: u32 number of frames, u64 length of the header, u64 length of each frame; then the header and the frames.
// Little endian.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::protocol {

struct PipeMessage {
  nlohmann::json header;
  std::vector<std::string> frames;
};

/// Writes all of it. Throws ChannelError when the other end is gone (never raises SIGPIPE).
void send_message(int fd, const PipeMessage& message);

/// Returns the bytes that send_message() writes, for a channel that is written to in pieces.
std::string wire_bytes(const PipeMessage& message);
/// Returns those that come before the frames, which have these sizes.
std::string wire_prefix(const nlohmann::json& header, std::span<const size_t> frame_sizes);

/// Reads one message; nothing when the other end has closed between messages. Throws ChannelError on anything cut
/// short.
std::optional<PipeMessage> receive_message(int fd);

/// Puts messages together from bytes as they arrive, for a reader that must not wait in the middle of one.
class MessageAssembler {
 public:
  void append(std::string_view bytes) { bytes_ += bytes; }
  /// Returns the next whole message, or nothing while more of it has to come. Throws ChannelError for bytes that are no
  /// message.
  std::optional<PipeMessage> next();

 private:
  std::string bytes_;
};

}  // namespace lockstep::protocol
