#include "protocol/rank_copy.h"

#include <cstring>
#include <string_view>
#include <utility>

#include "protocol/descriptor_messages.h"

namespace lockstep::protocol {
namespace {

constexpr size_t kMostBytes = 1 << 20;  // of an order; a socket takes less
// An order has the output, the lifeline, and then those of the channels of a rank, or the listener of the store.
constexpr size_t kOfRank = 8, kOfStore = 3;

/// Calls take(descriptor) for each that an order has after the first two.
template <typename Order, typename Take>
void for_rest(Order& order, bool is_store, Take take) {
  if (is_store) return take(order.listener);
  for (auto& each : order.channels) {
    take(each.read);
    take(each.write);
    take(each.log);
  }
}

}  // namespace

bool send(int socket, const CopyOrder& order) {
  std::vector<int> descriptors = {order.output, order.lifeline};
  for_rest(order, order.is_store(), [&](int fd) { descriptors.push_back(fd); });
  std::string text;
  for (const auto& [name, value] : order.environment) text += name + '=' + value + '\0';
  return send_descriptors(socket, text, descriptors);
}

bool send(int socket, const Copied& answer) {
  return send_descriptors(socket, {reinterpret_cast<const char*>(&answer), sizeof answer}, {});
}

std::optional<ReceivedOrder> receive_order(int socket) {
  WithDescriptors message = receive_descriptors(socket, kMostBytes);
  const auto& fds = message.descriptors;
  if (fds.size() != kOfRank && fds.size() != kOfStore) return std::nullopt;
  ReceivedOrder received;
  CopyOrder& order = received.order;
  std::string_view text = message.bytes;
  for (size_t end; (end = text.find('\0')) != std::string_view::npos; text.remove_prefix(end + 1)) {
    const size_t sign = text.find('=');
    if (sign > end) return std::nullopt;
    order.environment.emplace(text.substr(0, sign), text.substr(sign + 1, end - sign - 1));
  }
  order.output = fds[0].get();
  order.lifeline = fds[1].get();
  for_rest(order, fds.size() == kOfStore, [&, next = size_t{2}](int& fd) mutable { fd = fds[next++].get(); });
  order.environment["LOCKSTEP_LIFELINE_FD"] = std::to_string(order.lifeline);
  if (order.is_store())
    order.environment["LOCKSTEP_LISTEN_FD"] = std::to_string(order.listener);
  else
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
