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

 private:
  void buried(int rank, State before) override;
  void prepare(int rank) override;
  void wait_until_all(State wanted, const std::string& what);
  /// All, but for those that a replay does without.
  RankSet started_ranks() const;
  void compare_versions() const;
  void compare_version_of(int rank, const std::string& failure) const;

  std::string prelude_;
  Versions compiler_;
};

}  // namespace lockstep::shell
