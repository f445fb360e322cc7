#include "shell/jupyter/sockets.h"

#include <fmt/format.h>

#include "protocol/blocked_signals.h"
#include "protocol/error.h"
#include "shell/jupyter/own_accepts.h"
#include "shell/processes/limits.h"
#include "shell/processes/zmq_calls.h"

namespace lockstep::shell::jupyter {
namespace {

constexpr int kLinger_ms = 1000;  // for the last messages: "shutdown_reply"

void send_frames(zmq::socket_t& socket, const std::vector<std::string>& frames) {
  for (size_t i = 0; i < frames.size(); ++i)
    (void)shell::send(
        socket, zmq::buffer(frames[i]),
        i + 1 < frames.size() ? zmq::send_flags::sndmore | zmq::send_flags::dontwait : zmq::send_flags::dontwait);
}

/// Echoes until the context ends.
void echo(zmq::socket_t& socket) {
  try {
    while (true) {
      zmq::message_t message;
      if (shell::receive(socket, message))
        (void)shell::send(socket, message, message.more() ? zmq::send_flags::sndmore : zmq::send_flags::none);
    }
  } catch (const zmq::error_t&) {  // the context has ended
  }
}

}  // namespace

zmq::context_t Sockets::make_context() {
  require_threads(4, "a kernel");  // two of ZeroMQ, the heartbeat's, and one of its own
  return zmq::context_t();
}

Sockets::Sockets(ConnectionFile& connection)
    : codec_(connection.key),
      shell_(context_, zmq::socket_type::router),
      control_(context_, zmq::socket_type::router),
      stdin_(context_, zmq::socket_type::router),
      iopub_(context_, zmq::socket_type::xpub),
      heartbeat_(context_, zmq::socket_type::rep) {
  // A frontend that comes back with the same identity takes the place of the one that was there.
  for (zmq::socket_t* socket : {&shell_, &control_, &stdin_}) socket->set(zmq::sockopt::router_handover, true);
  iopub_.set(zmq::sockopt::xpub_manual, true);  // who listens is sent nothing before it is greeted
  iopub_.set(zmq::sockopt::sndhwm, 0);  // nothing of what ranks write is dropped for a slow listener
  accept_own_user_only();
  bind(shell_, connection, connection.shell_port);
  bind(control_, connection, connection.control_port);
  bind(stdin_, connection, connection.stdin_port);
  bind(iopub_, connection, connection.iopub_port);
  bind(heartbeat_, connection, connection.hb_port);
  const BlockedSignals signals;  // they are the main thread's
  heartbeat_thread_ = std::thread([this] {
    echo(heartbeat_);
    heartbeat_.close();
  });
}

Sockets::~Sockets() {
  for (zmq::socket_t* socket : {&shell_, &control_, &stdin_, &iopub_}) socket->close();
  context_.shutdown();
  heartbeat_thread_.join();
}

void Sockets::bind(zmq::socket_t& socket, const ConnectionFile& connection, int& port) {
  socket.set(zmq::sockopt::linger, kLinger_ms);
  const std::string endpoint = connection.endpoint(port);
  try {
    without_interrupts([&] { socket.bind(endpoint); });
  } catch (const zmq::error_t& error) {
    throw StartError(fmt::format("cannot listen at {}, which the connection file names: {}", endpoint, error.what()));
  }
  if (port != 0 || connection.transport != "tcp") return;
  const std::string bound = socket.get(zmq::sockopt::last_endpoint);
  port = std::stoi(bound.substr(bound.rfind(':') + 1));
}

std::optional<Message> Sockets::receive(zmq::socket_t& socket, const std::function<void(const std::string&)>& refused) {
  while (true) {
    std::vector<std::string> frames;
    zmq::message_t frame;
    do {
      if (!shell::receive(socket, frame, frames.empty() ? zmq::recv_flags::dontwait : zmq::recv_flags::none))
        return std::nullopt;
      frames.push_back(frame.to_string());
    } while (frame.more());
    try {
      return codec_.decode(frames);
    } catch (const ChannelError& error) {
      refused(error.what());
    }
  }
}

void Sockets::send(zmq::socket_t& socket, const Message& message) {
  try {
    send_frames(socket, codec_.encode(message));
  } catch (const zmq::error_t& error) {
    // The frontend is gone, which is no concern of the kernel's; others may listen.
    if (error.num() != EHOSTUNREACH) throw;
  }
}

void Sockets::publish(std::string_view type, const nlohmann::json& parent_header, nlohmann::json content,
                      nlohmann::json metadata) {
  welcome_listeners();
  Message message = codec_.make(type, parent_header, std::move(content));
  message.identities = {std::string(type)};
  message.metadata = std::move(metadata);
  send(iopub_, message);
}

void Sockets::welcome_listeners() {
  zmq::message_t frame;
  while (shell::receive(iopub_, frame, zmq::recv_flags::dontwait)) {
    const std::string subscription = frame.to_string();
    if (subscription.empty() || subscription[0] > '\1') continue;  // a message of a listener, to nobody
    const std::string topic = subscription.substr(1);
    if (subscription[0] != '\1') {  // somebody left
      iopub_.set(zmq::sockopt::unsubscribe, topic);
      continue;
    }
    iopub_.set(zmq::sockopt::subscribe, topic);
    Message message = codec_.make("iopub_welcome", nlohmann::json::object(), nlohmann::json{{"subscription", topic}});
    message.identities = {topic};
    send(iopub_, message);
  }
}

}  // namespace lockstep::shell::jupyter
