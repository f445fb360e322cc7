// What comes over a network, from another machine or another process: messages of links and relays, those of Jupyter, whose
// signature is right, of a keeper's terminals, of an editor and clangd.
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "protocol/error.h"
#include "protocol/read_struct.h"
#include "protocol/variant_json.h"
#include "shell/commands/clangd_proxy.h"
#include "shell/detached/messages.h"
#include "shell/jobs/relay_messages.h"
#include "shell/jupyter/message.h"
#include "shell/link/link_messages.h"
#include "tests/fuzz/fuzz_target.h"

namespace lockstep::fuzz {
namespace {

template <typename Variant>
void relay_message(const nlohmann::json& header) {
  try {
    protocol::encode_variant(protocol::decode_variant<Variant>(header));
  } catch (const ChannelError&) {
  }
}

void relay_messages(std::string_view bytes) {
  const auto header = protocol::read_json(bytes);
  if (header.is_discarded()) return;
  relay_message<shell::ToRelay>(header);
  relay_message<shell::FromRelay>(header);
}

/// The head of a message, and its body.
void link_messages(std::string_view bytes) {
  constexpr size_t kHead = 17;
  std::vector<zmq::message_t> frames;
  frames.emplace_back(std::string(bytes.substr(0, std::min(kHead, bytes.size()))));
  frames.emplace_back(std::string(bytes.substr(std::min(kHead, bytes.size()))));
  const auto message = shell::link_message(frames, 2);
  if (!message) return;
  shell::body_of<shell::LinkHello>(*message);
  shell::body_of<shell::LinkRefusal>(*message);
}

/// Four parts, a line each, with a signature that fits or does not.
void jupyter_message(std::string_view bytes) {
  shell::jupyter::MessageCodec codec("key");
  std::vector<std::string> frames = {"<IDS|MSG>", ""};
  for (std::string_view rest = bytes; !rest.empty();) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    frames.emplace_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  const auto decode = [&](const std::vector<std::string>& all) {
    try {
      codec.encode(codec.decode(all));
    } catch (const ChannelError&) {
    }
  };
  decode(frames);
  if (frames.size() < 6) return;
  shell::jupyter::Message message;
  nlohmann::json* const parts[] = {&message.header, &message.parent_header, &message.metadata, &message.content};
  for (size_t i = 0; i < 4; ++i) *parts[i] = protocol::read_json(frames[2 + i]);
  for (const nlohmann::json* part : parts)
    if (part->is_discarded()) return;
  decode(codec.encode(message));
}

/// What terminals, a keeper and its session read of one another, behind the kind of a message.
void keeper_mail(std::string_view bytes) {
  const auto read = [&]<typename Struct>(Struct) {
    if (const auto found = protocol::read_struct<Struct>(bytes)) shell::json_text(*found);
  };
  read(shell::TerminalHello());
  read(shell::TerminalSize());
  read(shell::KeeperAnswer());
  read(shell::LeaveTerminal());
  read(shell::NewTerminal());
  read(shell::OpenedSession());
  read(shell::DetachTerminal());
}

/// What an editor sends to `lockstep clangd`, and behind a form feed what clangd sends.
void editor_messages(std::string_view bytes) {
  shell::ClangdProxy proxy({"-std=c++20"});
  const size_t feed = std::min(bytes.find('\f'), bytes.size());
  std::string streams[] = {std::string(bytes.substr(0, feed)),
                           std::string(bytes.substr(std::min(feed + 1, bytes.size())))};
  for (std::string& stream : streams) {
    try {
      while (auto message = shell::take_editor_message(stream)) {
        if (&stream == streams)
          proxy.from_editor(std::move(*message));
        else
          proxy.from_clangd(std::move(*message));
      }
    } catch (const ChannelError&) {
    } catch (const nlohmann::json::exception&) {
    }
  }
}

const AddTarget kEditorMessages("editor_messages", editor_messages), kKeeperMail("keeper_mail", keeper_mail),
    kRelayMessages("relay_messages", relay_messages), kLinkMessages("link_messages", link_messages),
    kJupyterMessage("jupyter_message", jupyter_message);

}  // namespace
}  // namespace lockstep::fuzz
