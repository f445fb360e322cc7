// The ranks of a session whose shell is on another machine: the relay starts, watches and ends them in its place.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "shell/jobs/call_watch.h"
#include "shell/jobs/relay_messages.h"
#include "shell/processes/event_loop.h"
#include "shell/processes/local_place.h"
#include "shell/processes/session_directory.h"
#include "shell/relay/rank_hub.h"

namespace lockstep::shell {

class SessionRanks {
 public:
  using Write = std::function<void(const FromRelay& message, std::vector<std::string> frames)>;

  /// `calls` reads what the ranks call, but for Python ranks, which the relay sees.
  SessionRanks(EventLoop& loop, CallWatch& calls, Write write) : loop_(loop), calls_(calls), write_(std::move(write)) {}

  /// Starts the ranks. They keep their files in `directory`, and connect to the hub there.
  void start(const StartRanks& order, SessionDirectory& directory);
  void take(const KillRank& kill);
  void take(const RestartRank& restart);
  void take(const ReadLogs& read);
  /// `frames`: those of the message, header first.
  void take(const ToRanks& to, std::vector<std::string> frames);
  void take(const EndSoon&);

  bool is_started() const { return is_started_; }  // from any thread

  /// The folder of the job that Python ranks are; empty: there are none.
  std::string job_folder() const;

 private:
  void start_ranks();
  void enter(const std::string& folder);
  RankPlace::Listener listener();
  void describe() const;
  void watch_calls(size_t index);
  nlohmann::json log_of(int rank, const inspect::LogPart& part) const;

  EventLoop& loop_;
  CallWatch& calls_;
  const Write write_;
  SessionDirectory* directory_ = nullptr;  // once ranks are started
  std::atomic<bool> is_started_ = false;
  std::unique_ptr<RankHub> hub_;  // of ranks of C++
  std::unique_ptr<LocalPlace> ranks_;
  StartRanks order_;
  RanksStarted started_;
  std::string interface_;  // by which other hosts are reached
};

}  // namespace lockstep::shell
