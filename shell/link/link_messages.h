// What the two ends of a link send one another. A message has two frames: a head of 17 bytes (kind; offset and received,
// little endian), and bytes or JSON. Of each direction of a stream the bytes are numbered from 0, and its end takes a number
// as if it were a byte.
//
//   client                                server
//   hello {LinkHello: key}         →                                by the ticket's key: names the client's own
//                                  ←      welcome                   or refusal; that key is admitted: the connection ends
//   hello {LinkHello}, received    →                                first on each other connection; the stream's next epoch
//                                  ←      welcome, received         or refusal
//   data  offset, received, bytes  ⇄                                sent again from `received` on after each welcome
//   end   offset, received         ⇄                                no bytes follow
//   ack   received                 ⇄
//   ping  received                 →
//                                  ←      pong  received
//   refusal {why}                  ⇄                                final, whenever it comes
//
// A client makes a pair of keys for its stream, which no other program has: who has the ticket can begin a stream, and
// can't go on with that of another one. The server forgets keys with which there has been no stream for 60 s.
//
// `received`: so many numbers have been handed on by the sender of the message, in order. Whoever sends keeps what the
// other end does not have yet, at most LinkLimits::window bytes, and reads no more until some of it is acknowledged.
#pragma once
#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>
#include <zmq.hpp>

#include "protocol/json_fields.h"
#include "protocol/read_struct.h"

namespace lockstep::shell {

struct LinkLimits {
  std::chrono::milliseconds ping_every{2000};
  std::chrono::milliseconds silent_after{10000};  // said then; a client tries another connection
  std::chrono::milliseconds lost_after{60000};  // the stream ends
  std::chrono::milliseconds gone_after{10000};  // the same, where the client's machine has ended the connection
  size_t window = 1 << 20;  // bytes that one end has sent and the other has not handed on, in each direction
  size_t piece = 256 << 10;  // most bytes of a message; messages go in the order in which they were made
};

enum class LinkKind : uint8_t { hello = 1, welcome, refusal, data, end, ack, ping, pong };

struct LinkMessage {
  LinkKind kind = LinkKind::ack;
  uint64_t offset = 0;  // of data and end
  uint64_t received = 0;
  zmq::message_t body;
};

struct LinkHello {
  std::string version;  // of Lockstep
  std::string session, stream;  // 128 random bits each
  std::string key;  // public, of the client; with it there is no stream
  uint64_t epoch = 0;  // counts the connections of the stream
  bool resumes = false;  // the stream has been welcomed before
  nlohmann::json about;  // what the client says of itself
};

struct LinkRefusal {
  std::string why;
};

LOCKSTEP_JSON(LinkHello, version, session, stream, key, epoch, resumes, about)
LOCKSTEP_JSON(LinkRefusal, why)

zmq::message_t json_body(const nlohmann::json& json);

/// Returns what its body says; nothing where that is not JSON of such a struct.
template <typename Struct>
std::optional<Struct> body_of(const LinkMessage& message) {
  return protocol::read_struct<Struct>(message.body.to_string_view());
}

/// Sends it, to `route` where the socket is a ROUTER. False where that connection has ended.
bool send_link_message(zmq::socket_ref socket, LinkMessage message, const std::string& route = "");

/// Returns all frames of the next message; none where none is waiting.
std::vector<zmq::message_t> receive_frames(zmq::socket_ref socket);

/// Takes the message from the last two of `frames`, which are as many as `count`; nothing where they are no message.
std::optional<LinkMessage> link_message(std::vector<zmq::message_t>& frames, size_t count);

/// The longest frame that either end accepts.
int64_t longest_frame(const LinkLimits& limits);

/// Whether this is a key of CURVE as text.
bool is_link_key(const std::string& text);

/// A pair of keys of CURVE, as text. Throws StartError where this ZeroMQ has no CURVE.
struct LinkKeys {
  std::string open, secret;
};
LinkKeys make_link_keys();

/// Starts to report the events of a socket on the socket that it returns.
zmq::socket_t monitor_of(zmq::context_t& context, zmq::socket_ref socket, const std::string& name, int events);

/// The next event of a monitor, and its value; nothing where none is waiting.
struct LinkEvent {
  uint16_t kind = 0;
  int32_t value = 0;
};
std::optional<LinkEvent> next_event(zmq::socket_ref monitor);

}  // namespace lockstep::shell
