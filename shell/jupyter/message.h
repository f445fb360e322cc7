// A message of Jupyter's protocol (version 5.3 and later,
// https://jupyter-client.readthedocs.io/en/stable/messaging.html)
// has frames: identities, "<IDS|MSG>", signature, header, parent's header, metadata, content, buffers.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace lockstep::shell::jupyter {

inline constexpr const char* kProtocol = "5.4";

struct Message {
  std::vector<std::string> identities;  // of the socket that sent it, for the reply; of iopub: the topic
  nlohmann::json header = nlohmann::json::object();
  nlohmann::json parent_header = nlohmann::json::object();
  nlohmann::json metadata = nlohmann::json::object();
  nlohmann::json content = nlohmann::json::object();
  std::vector<std::string> buffers;

  std::string type() const { return header.value("msg_type", ""); }
};

/// Signs messages and refuses those that are not signed, or come a second time. Also gives messages their headers.
class MessageCodec {
 public:
  /// `key` is that of HMAC-SHA256.
  explicit MessageCodec(std::string key);

  /// Makes a message of type `type`, with a header of its own, in answer to `parent`.
  Message make(std::string_view type, const nlohmann::json& parent_header, nlohmann::json content) const;
  std::vector<std::string> encode(const Message& message) const;
  /// Throws ChannelError that says what is wrong with it.
  Message decode(const std::vector<std::string>& frames);

 private:
  std::string sign(const std::string* parts) const;  // of the four parts

  const std::string key_, session_, user_;
  std::unordered_set<std::string> seen_;  // signatures
};

}  // namespace lockstep::shell::jupyter
