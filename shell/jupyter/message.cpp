#include "shell/jupyter/message.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>

#include "protocol/error.h"
#include "protocol/read_json.h"
#include "shell/processes/random_key.h"

namespace lockstep::shell::jupyter {
namespace {

using nlohmann::json;

constexpr const char* kDelimiter = "<IDS|MSG>";
constexpr size_t kMostSeen = 1 << 16;  // signatures that are remembered

std::string now_text() {
  const auto now = std::chrono::system_clock::now();
  const auto seconds = std::chrono::floor<std::chrono::seconds>(now);
  const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(now - seconds).count();
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:06}Z", fmt::gmtime(std::chrono::system_clock::to_time_t(seconds)), micros);
}

/// What a cell writes need not be UTF-8; U+FFFD stands for what is not.
std::string dump(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

std::string user_name() {
  const char* name = std::getenv("USER");
  return name && *name ? name : "kernel";
}

}  // namespace

MessageCodec::MessageCodec(std::string key) : key_(std::move(key)), session_(random_key()), user_(user_name()) {}

Message MessageCodec::make(std::string_view type, const json& parent_header, json content) const {
  Message message;
  message.header = {{"msg_id", random_key()}, {"session", session_},           {"username", user_},
                    {"date", now_text()},     {"msg_type", std::string(type)}, {"version", kProtocol}};
  message.parent_header = parent_header;
  message.content = std::move(content);
  return message;
}

std::string MessageCodec::sign(const std::string* parts) const {
  std::string text;
  for (int i = 0; i < 4; ++i) text += parts[i];
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  if (!HMAC(EVP_sha256(), key_.data(), static_cast<int>(key_.size()),
            reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data(), &size))
    throw ChannelError("libcrypto can't compute HMAC-SHA256");
  return fmt::format("{:02x}", fmt::join(digest.begin(), digest.begin() + size, ""));
}

std::vector<std::string> MessageCodec::encode(const Message& message) const {
  std::vector<std::string> frames = message.identities;
  frames.emplace_back(kDelimiter);
  const std::array<std::string, 4> parts = {dump(message.header), dump(message.parent_header), dump(message.metadata),
                                            dump(message.content)};
  frames.push_back(sign(parts.data()));
  frames.insert(frames.end(), parts.begin(), parts.end());
  frames.insert(frames.end(), message.buffers.begin(), message.buffers.end());
  return frames;
}

Message MessageCodec::decode(const std::vector<std::string>& frames) {
  Message message;
  size_t at = 0;
  while (at < frames.size() && frames[at] != kDelimiter) message.identities.push_back(frames[at++]);
  if (frames.size() < at + 6) throw ChannelError("a message with too few frames");
  const std::string& signature = frames[at + 1];
  const std::string expected = sign(&frames[at + 2]);
  if (signature.size() != expected.size() || CRYPTO_memcmp(signature.data(), expected.data(), expected.size()) != 0)
    throw ChannelError("a message with a wrong signature");
  if (seen_.size() >= kMostSeen) seen_.clear();
  if (!seen_.insert(signature).second) throw ChannelError("a message that came before");
  const auto part = [&](size_t k, const char* name) {
    json value = protocol::read_json(frames[at + k]);
    if (!value.is_object()) throw ChannelError(fmt::format("a message whose {} is no JSON object", name));
    return value;
  };
  message.header = part(2, "header");
  message.parent_header = part(3, "parent header");
  message.metadata = part(4, "metadata");
  message.content = part(5, "content");
  const auto type = message.header.find("msg_type");
  if (type == message.header.end() || !type->is_string()) throw ChannelError("a message without a type");
  message.buffers.assign(frames.begin() + static_cast<ptrdiff_t>(at) + 6, frames.end());
  return message;
}

}  // namespace lockstep::shell::jupyter
