// What a terminal, or a kernel of Jupyter that has come instead of one, and the keeper of a detachable session (keeper.h)
// send each other, and what the keeper and its session do. Each message is one of a Unix socket that keeps messages apart:
// its kind in the first byte, and behind it bytes of the terminal, or a struct as JSON.
#pragma once
#include <sys/socket.h>
#include <sys/types.h>

#include <cerrno>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "protocol/descriptor_messages.h"
#include "protocol/json_fields.h"
#include "protocol/version.h"

namespace lockstep::shell {

enum class Mail : char {
  // from a terminal
  hello = 'h',  // TerminalHello, first of all
  keys = 'k',  // bytes that were typed
  size = 's',  // TerminalSize
  redraw = 'r',  // the terminal has shown other things meanwhile
  // to a terminal
  answer = 'a',  // KeeperAnswer
  output = 'o',  // bytes to show
  leave = 'l',  // LeaveTerminal, last of all
  // from the keeper to its session
  attached = 't',  // NewTerminal; of a notebook with the descriptor through which the session talks with it
  lost = 'x',  // nobody sees what is drawn from here on
  watched = 'w',  // text: somebody looks on from here on
  over = 'e',  // text: nobody has come back in time; SIGHUP follows
  alone = 'n',  // text: why no other terminal can come, and %detach is refused
  // from the session to its keeper
  opened = 'i',  // OpenedSession
  detach = 'd',  // DetachTerminal
};

struct TerminalSize {
  int columns = 0, rows = 0;
};
LOCKSTEP_JSON(TerminalSize, columns, rows)

/// Says what somebody who connects to a keeper wants: to type, to look on, to hear how the session stands, and that is all,
/// or to have the cells of a notebook run: the session then talks with it through the descriptor that its hello brings.
enum class Asks { nothing, type, watch, state, notebook };
NLOHMANN_JSON_SERIALIZE_ENUM(Asks, {{Asks::nothing, ""},  // also what no keeper knows
                                    {Asks::type, "type"},
                                    {Asks::watch, "watch"},
                                    {Asks::state, "state"},
                                    {Asks::notebook, "notebook"}})

struct TerminalHello {
  int protocol = 0;  // kProtocolVersion
  Asks asks = Asks::nothing;
  bool takes_over = false;  // from another terminal that types
  std::string name;  // /dev/pts/3, and where it comes from, or "the notebook lesson.ipynb", for people
  std::string type;  // TERM
  TerminalSize size;
  std::string key;  // of a notebook, which signs its messages with it
};
LOCKSTEP_JSON(TerminalHello, protocol, asks, takes_over, name, type, size, key)

/// Describes how a session and its terminals stand.
struct KeeperAnswer {
  int protocol = 0;  // kProtocolVersion
  bool is_accepted = false;
  std::string problem;  // why not
  std::string id;
  pid_t pid = 0;  // of the session
  std::string terminal;  // that types; empty: it is detached
  int64_t since = 0;  // that it is attached or detached; seconds since 1970
  int64_t until = 0;  // the session ends then; 0: it is attached
  int watchers = 0;
};
LOCKSTEP_JSON(KeeperAnswer, protocol, is_accepted, problem, id, pid, terminal, since, until, watchers)

struct LeaveTerminal {
  std::string text;  // for people; empty: the session has ended
  int exit_code = 0;
  bool is_detached = false;  // by %detach
};
LOCKSTEP_JSON(LeaveTerminal, text, exit_code, is_detached)

struct NewTerminal {
  std::string mark;  // what the session writes to its terminal before anything that is meant for the new one
  std::string type;  // TERM
  int64_t since = 0;  // when the one before it was lost; 0: nobody was away
  std::string key;  // as in its hello
};
LOCKSTEP_JSON(NewTerminal, mark, type, since, key)

struct OpenedSession {
  std::string id;
};
LOCKSTEP_JSON(OpenedSession, id)

struct DetachTerminal {
  std::optional<int64_t> seconds;  // that the session waits; none: as it was started with
};
LOCKSTEP_JSON(DetachTerminal, seconds)

/// The most bytes of a terminal in a message.
inline constexpr size_t kMostMail = 16 << 10;

/// A message as it came.
struct Received {
  Reading found = Reading::failed;
  Mail kind{};
  std::string body;
  Descriptor descriptor;  // that came with it
};
inline Received receive_mail(int socket) {
  WithDescriptors got = receive_descriptors(socket, kMostMail + 1);
  Received mail{.found = got.found, .body = {}, .descriptor = {}};
  if (got.found != Reading::bytes) return mail;
  mail.kind = static_cast<Mail>(got.bytes[0]);
  mail.body = got.bytes.substr(1);
  if (!got.descriptors.empty()) mail.descriptor = std::move(got.descriptors.front());
  return mail;
}

/// Sends it without waiting. False where the socket has no room for it, or nobody is there: errno.
inline bool send_mail(int socket, Mail kind, std::string_view body = {}) {
  std::string bytes(1, static_cast<char>(kind));
  bytes += body.substr(0, kMostMail);
  return uninterrupted([&] { return ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT); }) ==
         static_cast<ssize_t>(bytes.size());
}

template <typename Struct>
std::string json_text(const Struct& body) {
  return nlohmann::json(body).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}
/// Sends a copy of `descriptor` with it, where there is one; it then waits where the socket does.
template <typename Struct>
bool send_json(int socket, Mail kind, const Struct& body, const Descriptor& descriptor = {}) {
  const int sent = descriptor.get();
  return descriptor ? send_descriptors(socket, static_cast<char>(kind) + json_text(body), {&sent, 1})
                    : send_mail(socket, kind, json_text(body));
}

}  // namespace lockstep::shell
