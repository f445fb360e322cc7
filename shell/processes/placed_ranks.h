// The processes of a session's ranks on its places: which rank is where, what it runs as, and how it has ended. What
// groups of all languages have in common.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "protocol/rank_set.h"
#include "protocol/worker_messages.h"
#include "shell/processes/hub.h"
#include "shell/processes/rank_place.h"
#include "shell/processes/session_options.h"

namespace lockstep::shell {

class PlacedRanks {
 public:
  struct Listener {
    std::function<void(int rank, pid_t pid, const std::string& device)> started;
    std::function<void(const std::string& why)> failed;  // RankPlace::Listener::failed
    std::function<void(int rank)> ended;  // end() says how
    std::function<void(const std::string& how, const std::string& last_lines)> store_ended;
    std::function<void(const std::string& text)> warning;
    std::function<void(const std::vector<dist::NewCall>&)> calls;  // RankPlace::Listener::calls
  };

  PlacedRanks(RankPlaces places, Hub& hub, Listener listener);
  PlacedRanks(const PlacedRanks&) = delete;
  PlacedRanks& operator=(const PlacedRanks&) = delete;

  /// Has the first place start the store and its ranks, and the others theirs when its address is known. Throws StartError.
  void start(const SessionOptions& options);

  int size() const { return static_cast<int>(processes_.size()); }
  RankPlace& place_of(int rank) const { return *places_[processes_.at(static_cast<size_t>(rank)).place]; }
  const RankPlaces& places() const { return places_; }
  pid_t pid(int rank) const { return processes_.at(static_cast<size_t>(rank)).pid; }
  const std::optional<RankExit>& end(int rank) const { return processes_.at(static_cast<size_t>(rank)).end; }
  bool has_store() const { return places_.front()->has_store(); }
  /// The backend of all ranks, as SessionPlan has it. Known once the first place has started.
  const std::string& backend() const { return backend_; }
  /// The interpreter of Python ranks, on the first place.
  const std::string& interpreter() const { return interpreter_; }
  /// RankPlace::grow(), in a session of one place.
  void grow(const SessionPlan& plan);
  /// RankPlace::restart().
  void restart(int rank, int64_t generation);
  /// A rank that was started again has connected, from the process `pid`.
  void came_back(int rank, pid_t pid);
  void end_soon();
  void read_logs(const std::vector<inspect::RankPicture*>& ranks, const inspect::LogPart& part) const;
  /// Sends the path of the prelude to `ranks`, and the file to hosts that do not have it.
  void send_prelude(const RankSet& ranks, const std::string& path);
  /// Does what RankGroup::send_object() does.
  void send_object(const RankSet& ranks, protocol::Load load, std::string object);
  /// Describes which ranks are on which host, and by which network they reach one another; empty where all are here.
  std::string places_text() const;
  /// Returns "; it wrote:" and the last lines of what the process of a rank wrote; empty where it wrote nothing.
  std::string quoted_output(int rank) const;
  /// Returns the workers of session.json. Those of other machines have no process number there: it would be looked for here.
  nlohmann::json describe() const;

 private:
  struct Process {
    size_t place = 0;
    pid_t pid = 0;
    uint64_t start_time = 0;
    std::optional<RankExit> end;
  };
  int first_of(size_t place) const;
  int node_of(size_t place) const;
  std::map<size_t, RankSet> by_place(const RankSet& ranks) const;
  void start_place(size_t place);
  void started(size_t place, const RanksStarted& what);

  const RankPlaces places_;
  Hub& hub_;
  const Listener listener_;
  StartRanks order_;  // what all places have in common
  std::vector<Process> processes_;  // by rank
  std::string backend_, interpreter_;
  std::vector<std::string> interfaces_;  // by place
};

}  // namespace lockstep::shell
