// The channels between a kernel and its frontends, whatever they go through: sockets of ZeroMQ (sockets.h), or the process
// that has those (session_channels.h).
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shell/jupyter/message.h"
#include "shell/processes/event_loop.h"

namespace lockstep::shell::jupyter {

enum class Channel { shell, control, input, iopub };

class Channels {
 public:
  using Taken = std::function<void(Channel, const std::vector<std::string>& frames)>;
  /// `key` signs the messages.
  explicit Channels(std::string key) : codec_(std::move(key)) {}
  virtual ~Channels() = default;
  Channels(const Channels&) = delete;
  Channels& operator=(const Channels&) = delete;

  MessageCodec& codec() { return codec_; }

  /// Calls `taken` for each message that comes, until forget().
  virtual void watch(EventLoop& loop, Taken taken) = 0;
  virtual void forget(EventLoop& loop) = 0;
  /// Takes those that are there already.
  virtual void take() = 0;
  /// A frontend that is gone is no concern of the kernel's; others may listen.
  virtual void send_frames(Channel channel, const std::vector<std::string>& frames) = 0;

  /// Returns the message; nothing for one that is not signed, or damaged, which is reported.
  std::optional<Message> decode(const std::vector<std::string>& frames);
  void send(Channel channel, const Message& message) { send_frames(channel, codec_.encode(message)); }
  /// Sends to all who listen to what the kernel does.
  void publish(std::string_view type, const nlohmann::json& parent_header, nlohmann::json content,
               nlohmann::json metadata = nlohmann::json::object());
  /// Sends `content` in answer to a request. The type follows from the request's: "execute_reply".
  void reply(Channel channel, const Message& request, nlohmann::json content,
             nlohmann::json metadata = nlohmann::json::object());
  void publish_status(const Message& request, const char* state) {
    publish("status", request.header, {{"execution_state", state}});
  }

 private:
  MessageCodec codec_;
};

}  // namespace lockstep::shell::jupyter
