// The ranks that a session of C++ starts, on one place or several: started together, watched, ended together.
#pragma once
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
  void restart(int rank, int64_t generation) override;
  bool can_restart(int rank) const override { return placed_.place_of(rank).can_restart(); }

 private:
  void buried(int rank, State before) override;
  void wait_until_all(State wanted, const std::string& what);
  void compare_versions(const Versions& compiler) const;
  void wait_until_back(int rank, State wanted);
  protocol::CellError obituary(int rank) const;

  std::string prelude_;
};

}  // namespace lockstep::shell
