#include "protocol/pipe_channel.h"

#include <cerrno>
#include <cstring>

#include "protocol/descriptor.h"
#include "protocol/error.h"
#include "protocol/read_json.h"

namespace lockstep::protocol {
namespace {

// No message needs more; a larger length means that the stream is not ours.
constexpr uint64_t kLargestPart = uint64_t{1} << 32;
constexpr uint32_t kMostFrames = 4096;

void send_bytes(int fd, std::string_view bytes) {
  if (!send_all(fd, bytes))
    throw ChannelError(std::string("the other end of a channel is gone: ") + std::strerror(errno));
}

/// False when the stream ended before the first byte.
bool receive_bytes(int fd, void* data, size_t size) {
  const ssize_t count = read_all(fd, data, size);
  if (count < 0 && errno != ECONNRESET)
    throw ChannelError(std::string("reading from a channel failed: ") + std::strerror(errno));
  if (count > 0 && static_cast<size_t>(count) < size)
    throw ChannelError("a message was cut short: the other end of the channel is gone");
  return count > 0;
}

void read_rest(int fd, void* data, size_t size) {
  if (size > 0 && !receive_bytes(fd, data, size))
    throw ChannelError("a message was cut short: the other end of the channel is gone");
}

std::string prefix_of(const PipeMessage& message) {
  std::vector<size_t> sizes;
  for (const auto& frame : message.frames) sizes.push_back(frame.size());
  return wire_prefix(message.header, sizes);
}

PipeMessage message_of(std::string_view header, std::vector<std::string> frames) {
  PipeMessage message{read_json(header), std::move(frames)};
  if (message.header.is_discarded()) throw ChannelError("a message with a damaged header arrived");
  return message;
}

void check_size(uint64_t size) {
  if (size > kLargestPart) throw ChannelError("what arrived on a channel is no message of Lockstep");
}

void check_frames(uint32_t frames) {
  if (frames > kMostFrames) throw ChannelError("what arrived on a channel is no message of Lockstep");
}

}  // namespace

std::string wire_prefix(const nlohmann::json& header, std::span<const size_t> frame_sizes) {
  const std::string text = header.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  std::string prefix;
  const auto put = [&](auto value) { prefix.append(reinterpret_cast<const char*>(&value), sizeof value); };
  put(static_cast<uint32_t>(frame_sizes.size()));
  put(static_cast<uint64_t>(text.size()));
  for (const size_t size : frame_sizes) put(static_cast<uint64_t>(size));
  return prefix + text;
}

void send_message(int fd, const PipeMessage& message) {
  send_bytes(fd, prefix_of(message));
  for (const auto& frame : message.frames) send_bytes(fd, frame);
}

std::string wire_bytes(const PipeMessage& message) {
  std::string bytes = prefix_of(message);
  for (const auto& frame : message.frames) bytes += frame;
  return bytes;
}

std::optional<PipeMessage> receive_message(int fd) {
  uint32_t frames = 0;
  if (!receive_bytes(fd, &frames, sizeof frames)) return std::nullopt;
  check_frames(frames);
  std::vector<uint64_t> sizes(frames + 1);
  read_rest(fd, sizes.data(), sizes.size() * sizeof sizes[0]);
  for (uint64_t size : sizes) check_size(size);
  std::string header(sizes[0], '\0');
  read_rest(fd, header.data(), header.size());
  std::vector<std::string> contents(frames);
  for (uint32_t i = 0; i < frames; ++i) {
    contents[i].resize(sizes[i + 1]);
    read_rest(fd, contents[i].data(), contents[i].size());
  }
  return message_of(header, std::move(contents));
}

std::optional<PipeMessage> MessageAssembler::next() {
  const auto number_at = [this](size_t at, auto value) {
    std::memcpy(&value, bytes_.data() + at, sizeof value);
    return value;
  };
  if (bytes_.size() < sizeof(uint32_t)) return std::nullopt;
  const auto frames = number_at(0, uint32_t{});
  check_frames(frames);
  size_t at = sizeof(uint32_t) + sizeof(uint64_t) * (size_t{frames} + 1);
  if (bytes_.size() < at) return std::nullopt;
  std::vector<uint64_t> sizes(size_t{frames} + 1);
  uint64_t whole = at;
  for (size_t i = 0; i < sizes.size(); ++i) {
    sizes[i] = number_at(sizeof(uint32_t) + i * sizeof(uint64_t), uint64_t{});
    check_size(sizes[i]);
    whole += sizes[i];
  }
  if (bytes_.size() < whole) return std::nullopt;
  const std::string header = bytes_.substr(at, sizes[0]);
  at += sizes[0];
  std::vector<std::string> contents(frames);
  for (uint32_t i = 0; i < frames; ++i) {
    contents[i] = bytes_.substr(at, sizes[i + 1]);
    at += sizes[i + 1];
  }
  bytes_.erase(0, whole);
  return message_of(header, std::move(contents));
}

}  // namespace lockstep::protocol
