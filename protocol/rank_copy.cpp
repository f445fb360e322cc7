#include "protocol/rank_copy.h"

#include <array>
#include <cstring>
#include <string_view>
#include <utility>

#include "protocol/descriptor_messages.h"

namespace lockstep::protocol {
namespace {

constexpr size_t kMostBytes = 1 << 20;  // of an order; a socket takes less
constexpr size_t kDescriptors = 8;

}  // namespace

bool send(int socket, const CopyOrder& order) {
  std::array<int, kDescriptors> descriptors = {order.output, order.lifeline};
  size_t next = 2;
  for (const OutputChannel& each : order.channels)
    for (const int fd : {each.read, each.write, each.log}) descriptors.at(next++) = fd;
  std::string text;
  for (const auto& [name, value] : order.environment) text += name + '=' + value + '\0';
  return send_descriptors(socket, text, descriptors);
}

bool send(int socket, const Copied& answer) {
  return send_descriptors(socket, {reinterpret_cast<const char*>(&answer), sizeof answer}, {});
}

std::optional<ReceivedOrder> receive_order(int socket) {
  WithDescriptors message = receive_descriptors(socket, kMostBytes);
  if (message.descriptors.size() != kDescriptors) return std::nullopt;
  ReceivedOrder received;
  CopyOrder& order = received.order;
  std::string_view text = message.bytes;
  for (size_t end; (end = text.find('\0')) != std::string_view::npos; text.remove_prefix(end + 1)) {
    const size_t sign = text.find('=');
    if (sign > end) return std::nullopt;
    order.environment.emplace(text.substr(0, sign), text.substr(sign + 1, end - sign - 1));
  }
  const auto& fds = message.descriptors;
  order.output = fds[0].get();
  order.lifeline = fds[1].get();
  size_t next = 2;
  for (OutputChannel& each : order.channels)
    for (int* const fd : {&each.read, &each.write, &each.log}) *fd = fds[next++].get();
  order.environment["LOCKSTEP_LIFELINE_FD"] = std::to_string(order.lifeline);
  order.environment["LOCKSTEP_OUTPUT_FDS"] = output_channels_text(order.channels);
  received.descriptors = std::move(message.descriptors);
  return received;
}

Reading receive(int socket, Copied& answer) {
  const WithDescriptors message = receive_descriptors(socket, sizeof answer);
  if (message.found != Reading::bytes) return message.found;
  if (message.bytes.size() != sizeof answer) return Reading::failed;
  std::memcpy(&answer, message.bytes.data(), sizeof answer);
  return Reading::bytes;
}

}  // namespace lockstep::protocol
