// The ranks of a session whose cells are Python, in one place or several (python_ranks.h). From their start on they are
// at the prompt.
#pragma once
#include <string>
#include <vector>

#include "shell/jobs/job_group.h"
#include "shell/processes/placed_group.h"

namespace lockstep::shell {

class PythonGroup : public PlacedGroup<JobGroup> {
 public:
  /// Has the places start the store and the ranks; returns at once. Throws StartError.
  PythonGroup(EventLoop& loop, RankPlaces places, const SessionOptions& options, SessionDirectory& directory,
              Listener listener);

  void wait_connected() override;
  void make_ready(const std::string& prelude, const Versions&) override {
    prelude_ = prelude;
    placed_.send_prelude(live(), prelude);
  }
  std::string absence(int) const override { return "is dead"; }

  /// Returns the path of the interpreter that runs.
  const std::string& interpreter() const { return placed_.interpreter(); }

 private:
  void buried(int rank, State before) override;
  void came(int) override {}
  void prepare(int rank) override {
    if (!prelude_.empty()) placed_.send_prelude(RankSet{rank}, prelude_);
  }
  void disconnected(int rank) override;
  void add_elsewhere(std::vector<Job>& jobs) const override;

  std::string prelude_;  // of C++ cells, once there is one
};

}  // namespace lockstep::shell
