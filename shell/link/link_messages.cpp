#include "shell/link/link_messages.h"

#include <cstring>

#include "protocol/error.h"
#include "shell/processes/zmq_calls.h"

namespace lockstep::shell {
namespace {

constexpr size_t kHeadSize = 1 + 2 * sizeof(uint64_t);
constexpr int64_t kOverhead = 4096;  // CURVE adds to a frame; a greeting says less of its sender

bool has_body(LinkKind kind) { return kind <= LinkKind::data; }

}  // namespace

zmq::message_t json_body(const nlohmann::json& json) {
  return zmq::message_t(json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

bool send_link_message(zmq::socket_ref socket, LinkMessage message, const std::string& route) {
  zmq::message_t head(kHeadSize);
  auto* const at = head.data<uint8_t>();
  at[0] = static_cast<uint8_t>(message.kind);
  std::memcpy(at + 1, &message.offset, sizeof message.offset);
  std::memcpy(at + 1 + sizeof message.offset, &message.received, sizeof message.received);
  using zmq::send_flags;
  try {
    if (!route.empty() && !send(socket, zmq::buffer(route), send_flags::sndmore | send_flags::dontwait)) return false;
    return send(socket, head, send_flags::sndmore | send_flags::dontwait) &&
           send(socket, message.body, send_flags::dontwait);
  } catch (const zmq::error_t& error) {
    if (error.num() != EHOSTUNREACH) throw;
    return false;
  }
}

std::vector<zmq::message_t> receive_frames(zmq::socket_ref socket) {
  std::vector<zmq::message_t> frames;
  do {
    zmq::message_t frame;
    if (!receive(socket, frame, frames.empty() ? zmq::recv_flags::dontwait : zmq::recv_flags::none)) return {};
    frames.push_back(std::move(frame));
  } while (frames.back().more());
  return frames;
}

std::optional<LinkMessage> link_message(std::vector<zmq::message_t>& frames, size_t count) {
  if (frames.size() != count || count < 2 || frames[count - 2].size() != kHeadSize) return std::nullopt;
  const auto* const at = frames[count - 2].data<uint8_t>();
  LinkMessage message;
  if (at[0] < static_cast<uint8_t>(LinkKind::hello) || at[0] > static_cast<uint8_t>(LinkKind::pong))
    return std::nullopt;
  message.kind = static_cast<LinkKind>(at[0]);
  std::memcpy(&message.offset, at + 1, sizeof message.offset);
  std::memcpy(&message.received, at + 1 + sizeof message.offset, sizeof message.received);
  message.body = std::move(frames[count - 1]);
  if (!has_body(message.kind) && message.body.size() > 0) return std::nullopt;
  return message;
}

int64_t longest_frame(const LinkLimits& limits) { return static_cast<int64_t>(limits.piece) + kOverhead; }

bool is_link_key(const std::string& text) {
  uint8_t bytes[32];
  return text.size() == 40 && zmq_z85_decode(bytes, text.c_str());  // 40 digits of Z85
}

LinkKeys make_link_keys() {
  char open[41], secret[41];
  if (!zmq_has("curve") || zmq_curve_keypair(open, secret) != 0)
    throw StartError("the ZeroMQ of this lockstep has no CURVE, so it can't encrypt what goes over a network");
  return {open, secret};
}

zmq::socket_t monitor_of(zmq::context_t& context, zmq::socket_ref socket, const std::string& name, int events) {
  const std::string endpoint = "inproc://" + name;
  if (zmq_socket_monitor(socket.handle(), endpoint.c_str(), events) != 0)
    throw StartError(std::string("a socket's events can't be seen: ") + zmq_strerror(errno));
  zmq::socket_t monitor(context, zmq::socket_type::pair);
  monitor.set(zmq::sockopt::linger, 0);
  without_interrupts([&] { monitor.connect(endpoint); });
  return monitor;
}

std::optional<LinkEvent> next_event(zmq::socket_ref monitor) {
  const auto frames = receive_frames(monitor);
  if (frames.empty() || frames[0].size() < sizeof(uint16_t) + sizeof(int32_t)) return std::nullopt;
  LinkEvent event;
  std::memcpy(&event.kind, frames[0].data(), sizeof event.kind);
  std::memcpy(&event.value, frames[0].data<uint8_t>() + sizeof event.kind, sizeof event.value);
  return event;
}

}  // namespace lockstep::shell
