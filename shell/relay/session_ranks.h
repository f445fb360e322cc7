// The ranks of a session whose shell is on another machine: the relay starts, watches and ends them in its place.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "shell/jobs/relay_messages.h"
#include "shell/processes/event_loop.h"
#include "shell/processes/local_ranks.h"

namespace lockstep::shell {

class SessionRanks {
 public:
  using Write = std::function<void(const FromRelay& message, std::vector<std::string> frames)>;

  /// Ranks come to the socket of the path `hub`.
  SessionRanks(EventLoop& loop, const std::string& hub, Write write)
      : loop_(loop), hub_(hub), write_(std::move(write)) {}

  void take(const StartRanks& order);
  void take(const KillRank& kill);
  void take(const PutFile& file, const std::string& bytes);
  void take(const ReadLogs& read);
  void take(const EndSoon&);

 private:
  void start(const StartRanks& order);
  void enter(const std::string& folder);
  RankPlace::Listener listener();

  EventLoop& loop_;
  const std::string& hub_;
  const Write write_;
  std::unique_ptr<SessionDirectory> directory_;
  std::unique_ptr<LocalRanks> ranks_;
  StartRanks order_;
};

}  // namespace lockstep::shell
