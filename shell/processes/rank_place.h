// A machine on which ranks of a session run: this one (local_ranks.h, shell/jobs/python_ranks.h), or another one, through
// its relay (shell/jobs/remote_ranks.h). A session is a row of places; the first serves the store.
#pragma once
#include <sys/types.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collectives/log/new_calls.h"
#include "inspectors/hang/picture.h"
#include "protocol/error.h"
#include "protocol/variant_json.h"
#include "shell/processes/hub.h"
#include "shell/processes/session_plan.h"

namespace lockstep::shell {

/// Describes what a place is asked to start.
struct StartRanks {
  int first = 0, count = 0, world_size = 0;  // ranks first … first + count - 1
  int local_first = 0, local_size = 0;  // numbers of the ranks among those of their machine: local_first, …
  int node = 0;  // number of the machine, from 0
  int nodes = 1;  // how many machines there are
  std::vector<std::string> identities;  // by which the hub knows the ranks, in their order
  std::string store_key;
  std::string store;  // "10.0.0.1:1234"; empty: this place serves it
  // What its user has asked of the session.
  std::string backend = "auto";
  bool share_gpu = false, all_gpus_visible = false, check_collectives = true;
  std::map<std::string, std::string> arguments;
  std::string directory;  // in which the ranks start; where a place does not have it, they start in the user's home
  std::optional<std::string> python;  // SessionOptions::python

  /// The session, all of which is there, has so many ranks from now on.
  void grow(int size) {
    count = world_size = local_size = size;
    identities.resize(static_cast<size_t>(size));
  }
};

/// Describes what a place has started.
struct RanksStarted {
  std::string store = {};  // "10.0.0.1:1234"
  std::string backend = {};  // as SessionPlan has it
  std::vector<pid_t> pids = {};  // of the ranks, in their order
  std::vector<uint64_t> start_times = {};  // of /proc/PID/stat
  std::vector<std::string> devices = {};
  std::string interpreter = {};  // of Python ranks
  std::string interface = {};  // by which the ranks reach those of other hosts: "eth0"
};

/// The process of a rank.
struct RankProcess {
  pid_t pid = 0;
  uint64_t start_time = 0;  // of /proc/PID/stat
};

/// Describes how the process of a rank has ended.
struct RankExit {
  std::string words;  // "was killed by SIGKILL"
  int signal = 0;  // 0: it exited
  std::string core = {};  // "; its core file is /tmp/core.17"; empty: there is none
};

class RankPlace {
 public:
  struct Listener {
    std::function<void(const RanksStarted&)> started;
    /// The ranks can't be started there, or the machine is lost.
    std::function<void(const std::string& why)> failed;
    std::function<void(int rank, const RankExit& end)> ended;
    /// The process of the store, which the place serves, has ended; with what it wrote last, in lines.
    std::function<void(const std::string& how, const std::string& last_lines)> store_ended;
    std::function<void(const std::string& text)> warning;
    /// Its ranks have sent this, or their connections have ended: Hub::deliver() and deliver_ends().
    std::function<void(Carried message, const std::map<int, int>& lives)> sent = {};
    std::function<void(const RankSet& ranks, const std::map<int, int>& lives)> left = {};
    /// Its ranks have made these calls, which no rank there had made before.
    std::function<void(const std::vector<dist::NewCall>&)> calls = {};
  };
  virtual ~RankPlace() = default;
  RankPlace(const RankPlace&) = delete;
  RankPlace& operator=(const RankPlace&) = delete;

  /// The name of the machine; empty: this one.
  virtual std::string host() const { return ""; }
  /// Returns how many of the session's ranks it takes.
  virtual int count() const = 0;
  /// Several places may be on one machine: the number of the first rank of this one among all ranks of the machine, and
  /// how many ranks the machine has.
  virtual int local_first() const { return 0; }
  virtual int local_size() const { return count(); }
  /// Starts the ranks of `order`; its listener hears of what follows, perhaps at once. Throws StartError.
  virtual void start(const StartRanks& order, Listener listener) = 0;
  /// Takes a message to its ranks, as Hub::Carry. Nothing: they come to the socket of the hub here.
  virtual Hub::Carry carry(const StartRanks&) { return nullptr; }
  virtual bool has_store() const = 0;
  virtual void kill(int rank) = 0;
  /// Starts another process for a rank that has ended. The hub knows it by `identity`, and it joins the groups at the
  /// regroup `generation`. Throws StartError, also where can_restart() is false. The pid is 0 where it is known only
  /// when the rank connects.
  virtual RankProcess restart(int rank, const std::string& identity, int64_t generation);
  virtual bool can_restart() const { return false; }
  /// The session has the ranks of `plan` from now on. Those that are new start by restart(). Throws UsageError, also where
  /// the place is not all of the session.
  virtual void grow(const SessionPlan&) { throw UsageError("the ranks of this session can't become more"); }
  /// The session ends: what ranks have left goes with it, all at once.
  virtual void end_soon() {}

  /// The last lines of what the process of a rank wrote besides what its cells print; empty where there are none.
  virtual std::string last_lines(int rank) = 0;
  /// Returns what a rank that has ended wrote to stdout and stderr and had not sent: `received` bytes of each had arrived.
  virtual std::array<std::string, 2> take_output(int rank, const std::array<int64_t, 2>& received) = 0;
  /// Fills in the logs of these ranks (inspect::read_log()), with times of CLOCK_MONOTONIC here.
  void read_logs(const std::vector<inspect::RankPicture*>& ranks, const inspect::LogPart& part) {
    begin_read_logs(ranks, part)();
  }
  /// Asks for them. The result waits for the answer and fills them in: several places can be asked before it is called.
  virtual std::function<void()> begin_read_logs(const std::vector<inspect::RankPicture*>& ranks,
                                                const inspect::LogPart& part) = 0;
  /// Returns how far CLOCK_MONOTONIC there is ahead of the one here.
  virtual int64_t clock_ahead_ns() const { return 0; }
  /// Writes bytes to a file there, unless it is there already, and returns its path. `name` stands for the bytes: other
  /// bytes have another one. Returns nothing for this machine, whose ranks get the bytes in a message.
  virtual std::optional<std::string> put(const std::string& name, const std::shared_ptr<const std::string>& bytes) = 0;

 protected:
  RankPlace() = default;
};

inline RankProcess RankPlace::restart(int, const std::string&, int64_t) {
  throw StartError("a rank on " + (host().empty() ? "this machine" : host()) + " can't be started again alone");
}

using RankPlaces = std::vector<std::unique_ptr<RankPlace>>;
/// Returns how many ranks these take.
inline int count_of(const RankPlaces& places) {
  int count = 0;
  for (const auto& each : places) count += each->count();
  return count;
}

LOCKSTEP_MESSAGE("start_ranks", StartRanks, first, count, world_size, local_first, local_size, node, nodes, identities,
                 store_key, store, backend, share_gpu, all_gpus_visible, check_collectives, arguments, directory,
                 python)
LOCKSTEP_MESSAGE("started", RanksStarted, store, backend, pids, start_times, devices, interpreter, interface)

}  // namespace lockstep::shell
