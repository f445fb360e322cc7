// The ranks that a session of C++ starts, on one place or several: started together, watched, ended together.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "shell/processes/rank_group.h"
#include "shell/processes/rank_place.h"
#include "shell/processes/session_directory.h"
#include "shell/processes/session_options.h"

namespace lockstep::shell {

class WorkerGroup : public RankGroup {
 public:
  using Places = std::vector<std::unique_ptr<RankPlace>>;

  /// Has the places start the store and all workers; returns at once. Throws StartError.
  WorkerGroup(EventLoop& loop, Places places, const SessionOptions& options, const SessionDirectory& directory,
              Listener listener);
  ~WorkerGroup() override;  // ends what is left, by force

  void wait_connected() override;
  void make_ready(const std::string& prelude, const Versions& compiler) override;
  bool has_store() const override { return places_.front()->has_store(); }
  void kill(int rank) override { place_of(rank).kill(rank); }
  bool owns_processes() const override { return true; }
  nlohmann::json describe() const override;
  void read_logs(const std::vector<inspect::RankPicture*>& ranks, size_t recent) const override;
  int64_t clock_ahead_ns(int rank) const override { return place_of(rank).clock_ahead_ns(); }
  void send_object(const RankSet& ranks, protocol::Load load, std::string bytes) override;

  /// As SessionPlan has it. Known once all are connected.
  const std::string& backend() const { return backend_; }

 private:
  std::optional<End> take_end(int rank) override { return at_process(rank).end; }
  std::array<std::string, 2> take_last_output(int rank, const std::array<int64_t, 2>& received) override;
  void buried(int rank, State before) override;
  void give_up(int rank, const std::string& why) override;
  void begin_shutdown() override;

  struct Process {
    size_t place = 0;
    uint64_t start_time = 0;
    std::optional<End> end;
  };
  Process& at_process(int rank) { return processes_.at(static_cast<size_t>(rank)); }
  RankPlace& place_of(int rank) const { return *places_[processes_.at(static_cast<size_t>(rank)).place]; }
  /// Returns those of `ranks` that are on each place that has some, by its number.
  std::map<size_t, RankSet> by_place(const RankSet& ranks) const;
  void start_place(size_t place);
  void started(size_t place, const RanksStarted& what);
  RankPlace::Listener listener_of(size_t place);
  void fail_start(const std::string& why);
  void wait_until_all(State wanted, const std::string& what);
  void compare_versions(const Versions& compiler) const;
  std::string quoted_output(int rank) const;
  protocol::CellError obituary(int rank) const;

  const Places places_;
  StartRanks order_;  // what all places have in common
  std::vector<Process> processes_;  // by rank
  std::string backend_;
};

}  // namespace lockstep::shell
