// The five sockets of a kernel. Shell, control, stdin and iopub belong to the thread of the session; the heartbeat has
// a thread of its own, which answers whatever the kernel does.
#pragma once
#include <string>
#include <thread>
#include <vector>
#include <zmq.hpp>

#include "shell/jupyter/channels.h"
#include "shell/jupyter/connection_file.h"

namespace lockstep::shell::jupyter {

class Sockets : public Channels {
 public:
  /// Binds all of them and sets the ports of `connection` that were 0. Throws StartError.
  explicit Sockets(ConnectionFile& connection);
  ~Sockets() override;

  void watch(EventLoop& loop, Taken taken) override;
  void forget(EventLoop& loop) override;
  void take() override;
  void send_frames(Channel channel, const std::vector<std::string>& frames) override;
  /// Greets those who have begun to listen, so that they know that they miss nothing from here on.
  void welcome_listeners();

 private:
  static zmq::context_t make_context();
  void bind(zmq::socket_t& socket, const ConnectionFile& connection, int& port);

  zmq::socket_t& socket(Channel channel);
  void take(Channel channel);

  Taken taken_;
  zmq::context_t context_ = make_context();
  zmq::socket_t shell_, control_, stdin_, iopub_, heartbeat_;
  std::thread heartbeat_thread_;
};

}  // namespace lockstep::shell::jupyter
