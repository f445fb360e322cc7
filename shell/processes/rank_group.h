// The ranks of a session, wherever their processes come from: those that the session starts (worker_group.h), or those
// of a Python job that it has been attached to (job_group.h).
//
// A rank is dead once its process has ended and all that it had sent has arrived; only then does the listener hear of
// it.
#pragma once
#include <sys/types.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "protocol/rank_set.h"
#include "protocol/version.h"
#include "protocol/worker_messages.h"
#include "shell/processes/hub.h"

namespace lockstep::shell {

/// A rank as the session sees it.
struct RankInfo {
  enum class State { starting, connected, ready, dead };
  State state = State::starting;
  pid_t pid = 0;
  std::string host, device;
  protocol::Hello hello;
  int threads = 0;
};

class RankGroup {
 public:
  struct Listener {
    /// Anything but Hello, Ready, NotReady and Dying.
    std::function<void(FromWorker&)> message;
    /// Bytes that a rank wrote before its death and had not sent. Comes before died().
    std::function<void(int rank, Stream stream, std::string bytes)> last_output;
    /// Something that does not end the session.
    std::function<void(const std::string& text)> warning;
    /// A rank is gone; `error` says how in words, and where if the rank could still report that. Not called while the
    /// group starts or ends.
    std::function<void(int rank, const protocol::CellError& error)> died;
    /// The store's process has ended, `how` in words. Not called while the group starts or ends.
    std::function<void(const std::string& how)> store_ended;
  };

  virtual ~RankGroup() = default;

  /// Serves until all have said hello. Throws StartError for one that did not, with its last words, or is of another
  /// version.
  virtual void wait_connected() = 0;
  /// Compares versions with the compiler's (rule 12), has all load the prelude and serves until they are ready. Throws
  /// StartError.
  virtual void make_ready(const std::string& prelude, const Versions& compiler) = 0;
  /// From a callback: ends the start that is being waited for, with this message.
  virtual void cancel_start(const std::string& why) = 0;
  /// Asks all to end, waits 2 s at most, ends the rest by force. Ranks of a job go on.
  virtual void shutdown() = 0;

  virtual Hub& hub() = 0;
  virtual int world_size() const = 0;
  /// Ranks that take cells.
  virtual RankSet live() const = 0;
  virtual bool has_store() const = 0;
  virtual const RankInfo& rank(int rank) const = 0;
  /// Kills the process of a rank; died() follows. Of a job: leaves the rank alone.
  virtual void kill(int rank) = 0;
  /// Of processes, for session.json.
  virtual nlohmann::json describe() const = 0;

  /// Whether the session has started the processes, so that it may end them and connect them with one another.
  virtual bool owns_processes() const { return true; }
  /// Why a rank takes no cells: "is dead".
  virtual std::string absence(int) const { return "is dead"; }
};

}  // namespace lockstep::shell
