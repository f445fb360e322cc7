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
#include "protocol/rank_set.h"
#include "protocol/variant_json.h"
#include "shell/jobs/agent_client.h"
#include "shell/jobs/rank_ends.h"
#include "shell/processes/rank_place.h"

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
/// Asks for a Pong, which comes at once, whatever else the relay does. The relay looks for new ranks, too.
struct Ping {
  int64_t number = 0;
};
/// Says that the job which has this folder there is judged on another machine, `host`.
struct JudgedElsewhere {
  std::string folder, host;
};
/// The verdict of the judge; `ends`: the job is to end.
struct JudgesVerdict {
  std::string folder, host;
  int exit_code = 0;
  bool ends = false;
};

// These are of sessions, whose ranks the relay starts (StartRanks of shell/processes/rank_place.h is one more).

/// Kills the process of a rank.
struct KillRank {
  int rank = 0;
};
/// Starts another process for a rank that has ended, as RankPlace::restart. The rank comes to the hub; RankEnded is the
/// answer where it can't be started.
struct RestartRank {
  int rank = 0;
  std::string identity;
  int64_t generation = 0;
};
/// Frame 0 is the next piece of a file, which is in the folder of the session there once the last piece has come. Such
/// messages, and those that follow, are taken in their order: a rank that hears of the file later finds it. Answered by
/// FileTaken.
struct PutFile {
  std::string name;
  bool is_last = true;
};
/// Asks for the collective logs of ranks. Answered by Logs.
struct ReadLogs {
  int64_t number = 0;
  std::vector<int> ranks;
  uint64_t recent = 0;  // as inspect::LogPart
  bool digests = false;
};
/// The session ends: ranks that end now are not looked after one by one.
struct EndSoon {};

/// Frames: a message for the hub's ranks there, header first.
struct ToRanks {
  RankSet ranks;
};

// ---- both ways

/// Bytes of a connection that a rank has made to the relay's socket, in frame 0. No bytes: the connection has ended.
/// The relay numbers connections. Its first message of each has no bytes, and `opens` is true.
struct Piece {
  int64_t connection = 0;
  bool opens = false;
};

// ---- from the relay

struct RelayHello {
  std::string version;  // of Lockstep
  int protocol = 0;  // kProtocolVersion there
  std::string host;
  std::string machine;  // dist::machine_identity()
  std::string hub;  // the path of the socket at which ranks there come to the hub of this process; empty: there is none
  int gpus = 0;  // for the ranks of a session
  std::string processor;  // its kind, as Linux names it
};
/// A rank of this user runs there, or describes itself otherwise than before.
struct RankSeen {
  protocol::JobRank facts;
  std::string socket;
};
/// The process of a rank has ended. `evidence` is from its collective log, and from dumps if it raised an exception.
struct RankGone {
  SeenEnd end;
  std::vector<inspect::Evidence> evidence;
  std::vector<std::string> unread;
  int faults = 0;  // of inspectors, that ranks of its job have found there so far
};
/// A launcher there reports how ranks ended that it has started, of the job that has this folder.
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
  int64_t monotonic_ns = 0;  // CLOCK_MONOTONIC there
};
/// Calls that ranks there have made since the last such message, of which other machines have to have the same. Frame 0
/// has their signatures, of eight bytes each, in the order of `runs`.
struct CallsMade {
  struct Run {  // calls of one group that follow one another
    uint64_t incarnation = 0;  // dist::NewCall
    int64_t first = 0;  // number of the first
    int64_t count = 0;
  };
  std::vector<Run> runs;
};
/// The ranks of a session can't be started there. RanksStarted says that they are.
struct RanksFailed {
  std::string why;
};
/// The process of a rank has ended. Frames: what its stdout has left in the log and in the pipe (LeftOutput), then its
/// stderr.
struct RankEnded {
  int rank = 0;
  std::string how;  // "was killed by SIGKILL"
  int signal = 0;
  std::string core;  // RankExit::core
  std::string last_lines;  // of what the process wrote besides what its cells print
  std::vector<int64_t> ends;  // LeftOutput::end of stdout and stderr
  nlohmann::json log;  // inspect::log_json(), with its last collective; null: there is none
};
struct StoreEnded {
  std::string how, last_lines;
};
/// A piece of a file has come.
struct FileTaken {};
struct RelayWarning {
  std::string text;
};
/// The relay has got one of protocol::kPreemptionSignals.
struct RelaySignalled {
  int signal = 0;
};
/// Messages of ranks of a session, in their order. Frames: those of the first message, header first, then those of the
/// next.
struct FromRanks {
  std::vector<RankSet> from;  // who has sent each
  std::vector<int> frames;  // how many frames each has
  std::map<int, double> run_ms;  // of their Done messages, which do not have it themselves
  std::map<int, int> lives;  // how often ranks have been started again; those that are missing have not been
};
/// The connections of ranks of a session have ended. All that they had sent has come.
struct RanksLeft {
  RankSet ranks;
  std::map<int, int> lives;
};
struct Logs {
  int64_t number = 0;
  std::map<int, nlohmann::json> logs;  // inspect::log_json(), by rank
};

LOCKSTEP_MESSAGE("ask", Ask, number, pids, request, limit_ms)
LOCKSTEP_MESSAGE("ping", Ping, number)
LOCKSTEP_MESSAGE("judged_elsewhere", JudgedElsewhere, folder, host)
LOCKSTEP_MESSAGE("verdict", JudgesVerdict, folder, host, exit_code, ends)
LOCKSTEP_MESSAGE("kill", KillRank, rank)
LOCKSTEP_MESSAGE("restart", RestartRank, rank, identity, generation)
LOCKSTEP_MESSAGE("put", PutFile, name, is_last)
LOCKSTEP_MESSAGE("read_logs", ReadLogs, number, ranks, recent, digests)
LOCKSTEP_EMPTY_MESSAGE("end_soon", EndSoon)
LOCKSTEP_MESSAGE("to_ranks", ToRanks, ranks)
LOCKSTEP_MESSAGE("piece", Piece, connection, opens)
LOCKSTEP_MESSAGE("hello", RelayHello, version, protocol, host, machine, hub, gpus, processor)
LOCKSTEP_MESSAGE("rank", RankSeen, facts, socket)
LOCKSTEP_MESSAGE("gone", RankGone, end, evidence, unread, faults)
LOCKSTEP_MESSAGE("report", LauncherReport, folder, ends)
LOCKSTEP_MESSAGE("answer", AskAnswer, number, answers)
LOCKSTEP_MESSAGE("pong", Pong, number, time_ns, monotonic_ns)
LOCKSTEP_JSON(CallsMade::Run, incarnation, first, count)
LOCKSTEP_MESSAGE("calls", CallsMade, runs)
LOCKSTEP_MESSAGE("failed", RanksFailed, why)
LOCKSTEP_MESSAGE("ended", RankEnded, rank, how, signal, core, last_lines, ends, log)
LOCKSTEP_MESSAGE("store_ended", StoreEnded, how, last_lines)
LOCKSTEP_EMPTY_MESSAGE("file_taken", FileTaken)
LOCKSTEP_MESSAGE("warning", RelayWarning, text)
LOCKSTEP_MESSAGE("signalled", RelaySignalled, signal)
LOCKSTEP_MESSAGE("from_ranks", FromRanks, from, frames, run_ms, lives)
LOCKSTEP_MESSAGE("ranks_left", RanksLeft, ranks, lives)
LOCKSTEP_MESSAGE("logs", Logs, number, logs)

using ToRelay = std::variant<Ask, Ping, JudgedElsewhere, JudgesVerdict, Piece, StartRanks, KillRank, RestartRank,
                             PutFile, ReadLogs, EndSoon, ToRanks>;
using FromRelay =
    std::variant<RelayHello, RankSeen, RankGone, LauncherReport, AskAnswer, Pong, Piece, RanksStarted, RanksFailed,
                 RankEnded, StoreEnded, RelayWarning, RelaySignalled, Logs, FromRanks, RanksLeft, FileTaken, CallsMade>;

}  // namespace lockstep::shell
