// Through the agent of a rank a shell of the same user asks a Python job what it is doing, and nobody else does.
//
// Each rank of a job has a file and a socket in the job's folder (protocol/job.h). `lockstep run -- …` makes the folder
// and names it in LOCKSTEP_JOB; without it, all ranks of a launcher on a machine derive the same id from what they have
// in common (user, launcher's process, rendezvous), so they need not talk.
//
// The promises:
// - Nothing happens before start(): no thread, no file. Importing the package doesn't start it; the first call of one
//   of its functions does, and its entry point where LOCKSTEP_JOB is set.
// - The folder is private (0700, its owner checked), and a connection of another user is closed unread (SO_PEERCRED).
// - The agent's thread blocks all signals, sleeps in poll, and never takes the interpreter's lock: it answers while the
//   program is stuck anywhere. What may need that lock, or take long, runs on a second thread (Runs::aside), one
//   request at a time; the first thread answers meanwhile that it is busy.
// - A request is a line with a JSON object, {"request": NAME, ...}, of at most kLongestRequest bytes. The answer is a
//   line with an object: what the handler returned and "ok": true, or "ok": false and "error": what is wrong. Bad lines
//   are answered, longer ones end the connection. At most kMostConnections are open.
// - A child of the process (a worker of a data loader) has no agent: it closes its copies of the sockets, and starts
//   none of its own. A process that has the rank's number while another one with that number lives starts none either.
// - At the end of the process the agent says how it ended, if it knows (set_end), and takes the socket away. The folder
//   goes with the last rank, unless a shell made it.
//
// No LibTorch and no CPython: handlers that need them are registered from elsewhere.
#pragma once
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "protocol/job.h"

namespace lockstep::agent {

inline constexpr size_t kLongestRequest = size_t{1} << 20;
inline constexpr size_t kMostConnections = 16;

/// Takes the request, returns an object. An exception becomes the answer's "error".
using Handler = std::function<nlohmann::json(const nlohmann::json& request)>;

enum class Runs {
  here,  // on the agent's thread: must not block, nor take a lock that the program may hold for long
  aside,  // on the second thread
};

/// Registers what answers requests of that name; replaces an earlier one. From any thread, also before start().
void add_handler(const std::string& name, Handler handler, Runs runs = Runs::here);

/// Reads what the environment says about the rank of this process: the variables of torchrun, Open MPI, Slurm, PMI.
/// Returns false if it says nothing.
bool rank_from_environment(protocol::JobRank& rank);

/// Starts the agent of this process, as rank `rank.rank`; the process's own facts (pid, host, times) are filled in.
/// Does nothing when it is called again. Returns an empty string, or why there is no agent: this is a child of a rank,
/// another process is that rank, the folder can't be made or isn't private. The program goes on without it.
std::string start(protocol::JobRank rank);

/// Returns the job's folder; empty while no agent runs here.
std::string job_folder();
/// Returns the rank as start() was given it, with the process's facts. Means nothing while no agent runs here.
protocol::JobRank described_rank();

/// Sets where the rank is stopped; nothing: it runs. `number` is counted here. Others see it in the rank's file.
void set_stop(std::optional<protocol::RankStop> stop);
/// Whether a shell that has made the job's folder (`lockstep run`) runs.
bool is_watched();

/// Sets how the process ends. The first call counts.
void set_end(const protocol::RankEnd& end);
/// Ends both threads and removes the socket. A request that is being answered is given up. At the end of the process
/// this happens by itself.
void stop();

}  // namespace lockstep::agent
