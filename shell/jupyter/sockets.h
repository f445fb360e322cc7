// The five sockets of a kernel. Shell, control, stdin and iopub belong to the thread of the session; the heartbeat has
// a thread of its own, which answers whatever the kernel does.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>
#include <zmq.hpp>

#include "shell/jupyter/connection_file.h"
#include "shell/jupyter/message.h"

namespace lockstep::shell::jupyter {

class Sockets {
 public:
  /// Binds all of them and sets the ports of `connection` that were 0. Throws StartError.
  explicit Sockets(ConnectionFile& connection);
  ~Sockets();
  Sockets(const Sockets&) = delete;
  Sockets& operator=(const Sockets&) = delete;

  zmq::socket_t& shell() { return shell_; }
  zmq::socket_t& control() { return control_; }
  zmq::socket_t& iopub() { return iopub_; }
  zmq::socket_t& input() { return stdin_; }
  MessageCodec& codec() { return codec_; }

  /// Returns a message that is there already; none where nothing is. One that is not signed, or damaged, is left out
  /// and reported to `refused`.
  std::optional<Message> receive(zmq::socket_t& socket, const std::function<void(const std::string&)>& refused);
  void send(zmq::socket_t& socket, const Message& message);
  /// Sends to all who listen to what the kernel does.
  void publish(std::string_view type, const nlohmann::json& parent_header, nlohmann::json content,
               nlohmann::json metadata = nlohmann::json::object());
  /// Greets those who have begun to listen, so that they know that they miss nothing from here on.
  void welcome_listeners();

 private:
  static zmq::context_t make_context();
  void bind(zmq::socket_t& socket, const ConnectionFile& connection, int& port);

  MessageCodec codec_;
  zmq::context_t context_ = make_context();
  zmq::socket_t shell_, control_, stdin_, iopub_, heartbeat_;
  std::thread heartbeat_thread_;
};

}  // namespace lockstep::shell::jupyter
