// What the programs of a session send one another.
#include <nlohmann/json.hpp>
#include <string>
#include <variant>

#include "protocol/compiler_messages.h"
#include "protocol/error.h"
#include "protocol/pipe_channel.h"
#include "protocol/read_json.h"
#include "protocol/worker_messages.h"
#include "tests/fuzz/fuzz_target.h"

namespace lockstep::fuzz {
namespace {

/// A message that is understood is the same after another way.
template <typename Decode>
void round_trip(const nlohmann::json& header, Decode decode) {
  try {
    const auto once = protocol::encode(decode(header));
    check(protocol::encode(decode(once)) == once, "a message that was read is written so that it is the same again");
  } catch (const ChannelError&) {
  } catch (const nlohmann::json::exception&) {  // who receives it catches this, too
  }
}

/// So is the body of a Reply, whatever was asked.
void round_trips(const nlohmann::json& body) {
  const auto round_trip = [&](const protocol::Question& question) {
    const auto once = protocol::encode_answer(protocol::decode_answer(question, body));
    check(protocol::encode_answer(protocol::decode_answer(question, once)) == once,
          "an answer that was read is written so that it is the same again");
  };
  [&]<typename... Question>(std::variant<Question...>*) {
    (round_trip(Question()), ...);
  }(static_cast<protocol::Question*>(nullptr));
}

void worker_messages(std::string_view bytes) {
  const auto header = protocol::read_json(bytes);
  if (header.is_discarded()) return;
  if (header.is_object() && header.contains("body")) round_trips(header["body"]);
  round_trip(header, protocol::decode_hub_message);
  round_trip(header, protocol::decode_worker_message);
}

void compiler_messages(std::string_view bytes) {
  const auto header = protocol::read_json(bytes);
  if (header.is_discarded()) return;
  round_trip(header, protocol::decode_request);
  round_trip(header, protocol::decode_response);
}

/// Bytes of a channel that arrive in two pieces, at each of some places.
void pipe_channel(std::string_view bytes) {
  for (const size_t cut : {size_t{0}, bytes.size() / 3, bytes.size() - bytes.size() / 4}) {
    protocol::MessageAssembler assembler;
    try {
      for (const std::string_view piece : {bytes.substr(0, cut), bytes.substr(cut)}) {
        assembler.append(piece);
        while (const auto message = assembler.next()) {
          protocol::MessageAssembler again;
          again.append(protocol::wire_bytes(*message));
          const auto same = again.next();
          check(same && same->frames == message->frames, "frames arrive as they were sent");
        }
      }
    } catch (const ChannelError&) {
    }
  }
}

const AddTarget kWorkerMessages("worker_messages", worker_messages),
    kCompilerMessages("compiler_messages", compiler_messages), kPipeChannel("pipe_channel", pipe_channel);

}  // namespace
}  // namespace lockstep::fuzz
