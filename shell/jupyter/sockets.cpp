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
constexpr auto kFromFrontends = {Channel::shell, Channel::control, Channel::input};

void send_to(zmq::socket_t& socket, const std::vector<std::string>& frames) {
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
    : Channels(connection.key),
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

zmq::socket_t& Sockets::socket(Channel channel) {
  switch (channel) {
    case Channel::shell:
      return shell_;
    case Channel::control:
      return control_;
    case Channel::input:
      return stdin_;
    case Channel::iopub:
      break;
  }
  return iopub_;
}

void Sockets::watch(EventLoop& loop, Taken taken) {
  taken_ = std::move(taken);
  for (const Channel channel : kFromFrontends) loop.watch(socket(channel), [this, channel] { take(channel); });
  loop.watch(iopub_, [this] { welcome_listeners(); });
}

void Sockets::forget(EventLoop& loop) {
  for (zmq::socket_t* each : {&shell_, &control_, &stdin_, &iopub_}) loop.forget(*each);
}

void Sockets::take() {
  for (const Channel channel : kFromFrontends) take(channel);
}

void Sockets::take(Channel channel) {
  for (zmq::message_t frame; shell::receive(socket(channel), frame, zmq::recv_flags::dontwait);) {
    std::vector<std::string> frames{frame.to_string()};
    while (frame.more() && shell::receive(socket(channel), frame)) frames.push_back(frame.to_string());
    taken_(channel, frames);
  }
}

void Sockets::send_frames(Channel channel, const std::vector<std::string>& frames) {
  if (channel == Channel::iopub) welcome_listeners();
  try {
    send_to(socket(channel), frames);
  } catch (const zmq::error_t& error) {
    if (error.num() != EHOSTUNREACH) throw;
  }
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
    Message message = codec().make("iopub_welcome", nlohmann::json::object(), nlohmann::json{{"subscription", topic}});
    message.identities = {topic};
    send_to(iopub_, codec().encode(message));
  }
}

}  // namespace lockstep::shell::jupyter
