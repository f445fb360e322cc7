// The ranks that a session of C++ starts, on one place or several: started together, watched, ended together.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "shell/processes/placed_ranks.h"
#include "shell/processes/rank_group.h"
#include "shell/processes/session_directory.h"
#include "shell/processes/session_options.h"

namespace lockstep::shell {

class WorkerGroup : public RankGroup {
 public:
  /// Has the places start the store and all workers; returns at once. Throws StartError.
  WorkerGroup(EventLoop& loop, RankPlaces places, const SessionOptions& options, const SessionDirectory& directory,
              Listener listener);
  ~WorkerGroup() override { ending_ = true; }  // what is left ends with the places, by force

  void wait_connected() override;
  void make_ready(const std::string& prelude, const Versions& compiler) override;
  bool has_store() const override { return placed_.has_store(); }
  void kill(int rank) override { placed_.place_of(rank).kill(rank); }
  bool owns_processes() const override { return true; }
  nlohmann::json describe() const override { return placed_.describe(); }
  void read_logs(const std::vector<inspect::RankPicture*>& ranks, size_t recent) const override {
    placed_.read_logs(ranks, recent);
  }
  int64_t clock_ahead_ns(int rank) const override { return placed_.place_of(rank).clock_ahead_ns(); }
  void send_object(const RankSet& ranks, protocol::Load load, std::string bytes) override {
    placed_.send_object(ranks, std::move(load), std::move(bytes));
  }

  std::string places_text() const override { return placed_.places_text(); }

  const std::string& backend() const { return placed_.backend(); }

 private:
  std::optional<RankExit> take_end(int rank) override { return placed_.end(rank); }
  std::array<std::string, 2> take_last_output(int rank, const std::array<int64_t, 2>& received) override {
    return placed_.place_of(rank).take_output(rank, received);
  }
  void buried(int rank, State before) override;
  void give_up(int rank, const std::string& why) override;
  void begin_shutdown() override { placed_.end_soon(); }

  PlacedRanks::Listener placed_listener();
  void wait_until_all(State wanted, const std::string& what);
  void compare_versions(const Versions& compiler) const;
  protocol::CellError obituary(int rank) const;

  PlacedRanks placed_;
};

}  // namespace lockstep::shell
