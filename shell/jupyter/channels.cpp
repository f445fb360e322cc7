#include "shell/jupyter/channels.h"

#include <cstdio>

#include "protocol/error.h"

namespace lockstep::shell::jupyter {

std::optional<Message> Channels::decode(const std::vector<std::string>& frames) {
  try {
    return codec_.decode(frames);
  } catch (const ChannelError& error) {
    std::fprintf(stderr, "lockstep kernel: %s is left out\n", error.what());
    return std::nullopt;
  }
}

void Channels::publish(std::string_view type, const nlohmann::json& parent_header, nlohmann::json content,
                       nlohmann::json metadata) {
  Message message = codec_.make(type, parent_header, std::move(content));
  message.identities = {std::string(type)};
  message.metadata = std::move(metadata);
  send(Channel::iopub, message);
}

void Channels::reply(Channel channel, const Message& request, nlohmann::json content, nlohmann::json metadata) {
  const std::string type = request.type();
  const bool asks = channel == Channel::input;  // the frontend of the request, for a line
  Message message = codec_.make(asks ? "input_request" : type.substr(0, type.rfind("_request")) + "_reply",
                                request.header, std::move(content));
  message.identities = request.identities;
  message.metadata = std::move(metadata);
  send(channel, message);
}

}  // namespace lockstep::shell::jupyter
