// Compares what ranks on different machines have called. Ranks of one machine compare their calls before data moves;
// those of others can't see one another's logs, and Gloo adds int32 to float32 without a word. While a cell runs, the
// relays send signatures of calls (shell/jobs/call_watch.h), and the ranks of a group of calls that differ are told a few
// milliseconds later: they raise then what ranks of one machine raise. What is over before that is compared after the cell.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "collectives/log/call_digests.h"
#include "protocol/finding.h"
#include "shell/cells/cell_run.h"
#include "shell/cells/cell_services.h"
#include "shell/cells/hang_reporter.h"
#include "shell/cells/rank_queries.h"
#include "shell/processes/call_table.h"
#include "shell/processes/deadline.h"

namespace lockstep::shell {

class CallComparison {
 public:
  /// The functions of the cell runner that the comparison needs.
  struct Host {
    std::function<bool()> runs;  // whether a rank is in a cell
    std::function<void()> told;  // groups of ranks that have been told need new connections
  };
  CallComparison(const CellServices& services, const HangReporter& hangs, RankQueries& queries, Host host)
      : services_(services), hangs_(hangs), queries_(queries), host_(std::move(host)), look_(services.loop) {}

  /// Takes calls that ranks of one machine have made.
  void take(const std::vector<dist::NewCall>& calls);

  /// Returns the first calls that do not match, or the first data that one rank sends and another one does not expect,
  /// which nobody has reported yet; nothing where all ranks are on one machine. `run` is the cell that is over. Serves
  /// the loop while ranks are asked for lines of code.
  std::optional<Finding> find(const CellRun& run);

 private:
  using Digests = std::map<int, std::vector<dist::CallDigests>>;  // by rank
  /// `members`: the ranks of each group, by its name.
  std::optional<Finding> differing_call(const CellRun& run, const Digests& digests,
                                        const std::map<std::string, RankSet>& members);
  std::optional<Finding> differing_transfer(const CellRun& run, const Digests& digests);
  /// Fills in the lines of the records of `picture` that `is_meant` names.
  template <typename IsMeant>
  void name_lines(inspect::HangPicture& picture, const IsMeant& is_meant);
  void look();

  const CellServices& services_;
  const HangReporter& hangs_;
  RankQueries& queries_;
  const Host host_;
  CallTable table_;  // of all machines
  struct Difference {
    uint64_t incarnation = 0;
    int64_t seq = 0;
    EventLoop::Clock::time_point found_at;
  };
  std::optional<Difference> difference_;  // that is looked into; later ones follow from it
  Deadline look_;
  // The differences found so far. Later ones that overlap with them follow from them.
  std::vector<dist::DifferingCalls> calls_;
  std::set<std::tuple<std::string, int, int, int, int, int64_t>> transfers_;  // key, kind, from, to, tag and number
};

}  // namespace lockstep::shell
