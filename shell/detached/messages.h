// What a terminal and the keeper of a detachable session (keeper.h) send each other, and what the keeper and its
// session do. Each message is one of a Unix socket that keeps messages apart: its kind in the first byte, and behind it
// bytes of the terminal, or a struct as JSON.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "protocol/descriptor.h"
#include "protocol/json_fields.h"

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
  attached = 't',  // NewTerminal
  lost = 'x',  // nobody sees what is drawn from here on
  watched = 'w',  // text: somebody looks on from here on
  over = 'e',  // text: nobody has come back in time; SIGHUP follows
  // from the session to its keeper
  opened = 'i',  // OpenedSession
  detach = 'd',  // DetachTerminal
};

struct TerminalSize {
  int columns = 0, rows = 0;
};
LOCKSTEP_JSON(TerminalSize, columns, rows)

struct TerminalHello {
  std::string asks;  // "type", "watch", or "state": answered, and that is all
  bool takes_over = false;  // from another terminal that types
  std::string name;  // /dev/pts/3, and where it comes from, for people
  std::string type;  // TERM
  TerminalSize size;
};
LOCKSTEP_JSON(TerminalHello, asks, takes_over, name, type, size)

/// How a session and its terminals stand.
struct KeeperAnswer {
  bool is_accepted = false;
  std::string problem;  // why not
  std::string id;
  pid_t pid = 0;  // of the session
  std::string terminal;  // that types; empty: it is detached
  int64_t since = 0;  // that it is attached or detached; seconds since 1970
  int64_t until = 0;  // the session ends then; 0: it is attached
  int watchers = 0;
};
LOCKSTEP_JSON(KeeperAnswer, is_accepted, problem, id, pid, terminal, since, until, watchers)

struct LeaveTerminal {
  std::string text;  // for people; empty: the session has ended
  int exit_code = 0;
};
LOCKSTEP_JSON(LeaveTerminal, text, exit_code)

struct NewTerminal {
  std::string mark;  // what the session writes to its terminal before anything that is meant for the new one
  std::string type;  // TERM
  int64_t since = 0;  // when the one before it was lost; 0: it is the same
};
LOCKSTEP_JSON(NewTerminal, mark, type, since)

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
};
Received receive_mail(int socket);

/// Sends it without waiting. False where the socket has no room for it, or nobody is there: errno.
bool send_mail(int socket, Mail kind, std::string_view body = {});
template <typename Struct>
bool send_json(int socket, Mail kind, const Struct& body) {
  const nlohmann::json json = body;
  return send_mail(socket, kind, json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

/// Returns nothing where `body` is not what it should be.
template <typename Struct>
std::optional<Struct> read_json(const std::string& body) {
  try {
    return nlohmann::json::parse(body).get<Struct>();
  } catch (const nlohmann::json::exception&) {
    return {};
  }
}

}  // namespace lockstep::shell
