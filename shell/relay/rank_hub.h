// The hub of a host, to which its ranks connect; the relay carries their messages to the session. A message to many of
// them comes to this host once, and is handed to each here. Answers go back together: ranks mostly send the same (a
// cell is loaded, it is done), and then one message goes for all of them.
//
// An answer waits a moment for those of the other ranks that were asked with it, but not where all have answered.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "shell/jobs/relay_messages.h"
#include "shell/processes/deadline.h"
#include "shell/processes/event_loop.h"
#include "shell/processes/rank_sockets.h"

namespace lockstep::shell {

class RankHub {
 public:
  using Write = std::function<void(const FromRelay& message, std::vector<std::string> frames)>;

  /// Listens on `endpoint`. Throws StartError.
  RankHub(EventLoop& loop, const std::string& endpoint, Write write);
  ~RankHub();
  RankHub(const RankHub&) = delete;
  RankHub& operator=(const RankHub&) = delete;

  /// Notes that the process of `rank` that starts next has this identity.
  void expect(int rank, const std::string& identity);
  /// Hands a message to `ranks`: a header, and its frames.
  void send(const RankSet& ranks, std::vector<std::string> frames);

 private:
  /// Reads what has arrived, and sends it on now or in a moment.
  void read();
  void take(int rank, std::vector<zmq::message_t> frames);
  void flush();
  void look_at_connections();

  EventLoop& loop_;
  const std::string endpoint_;
  const Write write_;
  RankSockets sockets_;
  std::map<int, int> lives_;  // rank → how often it was started again; none: not
  RankSet known_, ended_;  // ranks that were expected; those of them whose connections have ended
  RankSet asked_;  // by the last message to them, and have not answered since

  // These messages wait to be sent on.
  FromRanks waiting_;
  std::vector<std::string> frames_;
  size_t bytes_ = 0;
  std::unordered_map<std::string, size_t> alike_;  // frames → their newest message in waiting_
  std::map<int, size_t> newest_;  // rank → its newest message in waiting_
  Deadline due_;
  bool has_warned_ = false;
};

}  // namespace lockstep::shell
