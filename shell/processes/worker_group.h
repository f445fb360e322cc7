// The ranks that a session of C++ starts, on one place or several: started together, watched, ended together.
#pragma once
#include <functional>
#include <string>

#include "shell/processes/placed_group.h"
#include "shell/processes/session_directory.h"
#include "shell/processes/session_options.h"

namespace lockstep::shell {

class WorkerGroup : public PlacedGroup<RankGroup> {
 public:
  /// Has the places start the store and all workers; returns at once. Throws StartError.
  WorkerGroup(EventLoop& loop, RankPlaces places, const SessionOptions& options, const SessionDirectory& directory,
              Listener listener);

  void wait_connected() override;
  void make_ready(const std::string& prelude, const Versions& compiler) override;
  bool restart(int rank, int64_t generation, const std::function<bool()>& interrupted) override;
  bool can_restart(int rank) const override { return placed_.place_of(rank).can_restart(); }

 private:
  void buried(int rank, State before) override;
  void wait_until_all(State wanted, const std::string& what);
  void compare_versions() const;
  void compare_version_of(int rank, const std::string& failure) const;
  bool wait_until_back(int rank, State wanted, const std::function<bool()>& interrupted);
  protocol::CellError obituary(int rank) const;

  std::string prelude_;
  Versions compiler_;
};

}  // namespace lockstep::shell
