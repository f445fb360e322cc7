// Compares what ranks on different machines have called, after a cell. Ranks of one machine compare their calls before
// data moves; those of others can't see one another's logs, and Gloo adds int32 to float32 without a word.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "collectives/log/call_digests.h"
#include "protocol/finding.h"
#include "shell/cells/cell_run.h"
#include "shell/cells/cell_services.h"
#include "shell/cells/hang_reporter.h"
#include "shell/cells/rank_queries.h"

namespace lockstep::shell {

class CallComparison {
 public:
  CallComparison(const CellServices& services, const HangReporter& hangs, RankQueries& queries)
      : services_(services), hangs_(hangs), queries_(queries) {}

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

  const CellServices& services_;
  const HangReporter& hangs_;
  RankQueries& queries_;
  // The differences found so far. Later ones that overlap with them follow from them.
  std::vector<dist::DifferingCalls> calls_;
  std::set<std::tuple<std::string, int, int, int, int, int64_t>> transfers_;  // key, kind, from, to, tag and number
};

}  // namespace lockstep::shell
