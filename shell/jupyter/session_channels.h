// The channels of a notebook whose cells a session of the terminal runs. The kernel's sockets are in the process that Jupyter
// has started (kernel_relay.h); messages go through a stream socket between the two, each with its channel.
#pragma once
#include "protocol/descriptor.h"
#include "protocol/pipe_channel.h"
#include "shell/jupyter/channels.h"

namespace lockstep::shell::jupyter {

/// One end of that socket. No sending waits; what there is no room for is kept.
class SessionChannels : public Channels {
 public:
  SessionChannels(Descriptor socket, std::string key);
  ~SessionChannels() override { close(); }

  void watch(EventLoop& loop, Taken taken) override;
  /// Gives what is kept a second to be sent, and ends the connection.
  void forget(EventLoop&) override;
  void take() override;
  /// After watch().
  void send_frames(Channel channel, const std::vector<std::string>& frames) override;

 private:
  std::optional<protocol::PipeMessage> next();
  void write();
  void close();

  Descriptor socket_;
  EventLoop* loop_ = nullptr;
  Taken taken_;
  protocol::MessageAssembler arrived_;
  std::string unsent_;
  size_t sent_ = 0;  // bytes of it
  bool waits_for_room_ = false;
};

}  // namespace lockstep::shell::jupyter
