// A `lockstep run` or `lockstep attach` and the relay on another machine (shell/relay/relay.h) exchange these over the
// relay's standard input and output, in the frames of protocol/pipe_channel.h. What a login shell prints before the
// relay's first line is skipped.
#pragma once
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <variant>
#include <vector>

#include "inspectors/evidence/evidence_json.h"
#include "protocol/variant_json.h"
#include "shell/jobs/agent_client.h"
#include "shell/jobs/rank_ends.h"

namespace lockstep::shell {

/// The first line of a relay; its messages follow.
inline constexpr const char* kRelayGreeting = "lockstep-relay\n";

LOCKSTEP_JSON(SeenEnd, rank, pid, wait_status, said, out_of_memory, of_machine, after_failure, unseen, time_s, seen_ns)

// ---- to the relay

/// Sends a request to the agents of the ranks that have these processes. Answered by AskAnswer.
struct Ask {
  int64_t number = 0;
  std::vector<int64_t> pids;
  nlohmann::json request;
  int64_t limit_ms = 0;
};
/// Answered by Pong at once, whatever else the relay does. It looks for new ranks, too.
struct Ping {
  int64_t number = 0;
};
/// Says that the job which has this folder there is judged on another machine, `host`.
struct JudgedElsewhere {
  std::string folder, host;
};
/// Says to what the judge has come; `ends`: the job is to end.
struct JudgesVerdict {
  std::string folder, host;
  int exit_code = 0;
  bool ends = false;
};

// ---- both ways

/// Bytes of a connection that a rank has made to the relay's socket: frame 0. None: it has ended. The relay numbers
/// connections, and its first message of each has no bytes yet but says so.
struct Piece {
  int64_t connection = 0;
  bool opens = false;
};

// ---- from the relay

struct RelayHello {
  std::string version;  // of Lockstep
  std::string host;
  std::string machine;  // dist::machine_identity()
  std::string hub;  // the path of the socket at which ranks there come to the hub of this process; empty: there is none
};
/// A rank of this user runs there, or says something else of itself than before.
struct RankSeen {
  protocol::JobRank facts;
  std::string socket;
};
/// Its process has ended. `evidence` is of what it has left: its collective log, and dumps if it raised an exception.
struct RankGone {
  SeenEnd end;
  std::vector<inspect::Evidence> evidence;
  std::vector<std::string> unread;
  int faults = 0;  // of inspectors, that ranks of its job have found there so far
};
/// What a launcher there reports of the ranks that it has started, of the job that has this folder.
struct LauncherReport {
  std::string folder;
  std::vector<SeenEnd> ends;
};
struct AskAnswer {
  int64_t number = 0;
  std::map<int, AgentAnswer> answers;  // by rank
};
struct Pong {
  int64_t number = 0;
  int64_t time_ns = 0;  // CLOCK_REALTIME there
};

LOCKSTEP_MESSAGE("ask", Ask, number, pids, request, limit_ms)
LOCKSTEP_MESSAGE("ping", Ping, number)
LOCKSTEP_MESSAGE("judged_elsewhere", JudgedElsewhere, folder, host)
LOCKSTEP_MESSAGE("verdict", JudgesVerdict, folder, host, exit_code, ends)
LOCKSTEP_MESSAGE("piece", Piece, connection, opens)
LOCKSTEP_MESSAGE("hello", RelayHello, version, host, machine, hub)
LOCKSTEP_MESSAGE("rank", RankSeen, facts, socket)
LOCKSTEP_MESSAGE("gone", RankGone, end, evidence, unread, faults)
LOCKSTEP_MESSAGE("report", LauncherReport, folder, ends)
LOCKSTEP_MESSAGE("answer", AskAnswer, number, answers)
LOCKSTEP_MESSAGE("pong", Pong, number, time_ns)

using ToRelay = std::variant<Ask, Ping, JudgedElsewhere, JudgesVerdict, Piece>;
using FromRelay = std::variant<RelayHello, RankSeen, RankGone, LauncherReport, AskAnswer, Pong, Piece>;

}  // namespace lockstep::shell
