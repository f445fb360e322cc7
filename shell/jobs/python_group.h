// The ranks of a session whose cells are Python, on one place or several (python_ranks.h). From their start on they sit at
// the prompt.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "shell/jobs/job_group.h"
#include "shell/processes/placed_ranks.h"

namespace lockstep::shell {

class PythonGroup : public JobGroup {
 public:
  /// Has the places start the store and the ranks; returns at once. Throws StartError.
  PythonGroup(EventLoop& loop, RankPlaces places, const SessionOptions& options, SessionDirectory& directory,
              Listener listener);
  ~PythonGroup() override { ending_ = true; }  // what is left ends with the places, by force

  void wait_connected() override;
  void make_ready(const std::string& prelude, const Versions&) override { placed_.send_prelude(live(), prelude); }
  bool has_store() const override { return placed_.has_store(); }
  void kill(int rank) override { placed_.place_of(rank).kill(rank); }
  bool owns_processes() const override { return true; }
  nlohmann::json describe() const override { return placed_.describe(); }
  std::string absence(int) const override { return "is dead"; }
  void read_logs(const std::vector<inspect::RankPicture*>& ranks, size_t recent) const override {
    placed_.read_logs(ranks, recent);
  }
  int64_t clock_ahead_ns(int rank) const override { return placed_.place_of(rank).clock_ahead_ns(); }
  void send_object(const RankSet& ranks, protocol::Load load, std::string bytes) override {
    placed_.send_object(ranks, std::move(load), std::move(bytes));
  }

  std::string places_text() const override { return placed_.places_text(); }

  const std::string& backend() const { return placed_.backend(); }
  /// The interpreter that runs.
  const std::string& interpreter() const { return placed_.interpreter(); }

 private:
  std::optional<RankExit> take_end(int rank) override { return placed_.end(rank); }
  std::array<std::string, 2> take_last_output(int rank, const std::array<int64_t, 2>& received) override {
    return placed_.place_of(rank).take_output(rank, received);
  }
  void buried(int rank, State before) override;
  void give_up(int rank, const std::string& why) override;
  void came(int) override {}
  void disconnected(int rank) override;
  void begin_shutdown() override { placed_.end_soon(); }
  void add_elsewhere(std::vector<Job>& jobs) const override;
  PlacedRanks::Listener placed_listener();

  PlacedRanks placed_;
};

}  // namespace lockstep::shell
