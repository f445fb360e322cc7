// Finds out who waits for whom while cells run, and tells it: a proven hang as a finding, once; a long wait as the state of a rank.
//
// Nothing is looked at while all is well. A look is caused by an event: a rank says that it waits in vain (Waiting) or for long
// (LongWait), or the limit of --hang-timeout has passed. It reads the collective logs of all ranks; where they allow a hang, or a
// wait is to be told, the I/O threads of the ranks are asked for native stacks and lines of code, and inspectors/hang/hang_analysis.h
// judges. While logs allow a hang that the stacks do not show yet, the look is repeated, less and less often.
//
// On the session's thread. Nothing here waits: answers come back through reply().
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "inspectors/hang/hang_picture.h"
#include "shell/cells/cell_run.h"
#include "shell/events/event.h"
#include "shell/processes/event_loop.h"
#include "shell/processes/session_directory.h"
#include "shell/processes/session_options.h"
#include "shell/processes/worker_group.h"

namespace lockstep::shell {

class HangReporter {
 public:
  /// What it needs of the cell runner.
  struct Host {
    std::function<std::vector<CellRun*>()> cells;  // that are open, oldest first
    std::function<CellRun*()> current;  // that is being served, or null
    std::function<void(Finding finding, int64_t number)> add_finding;
    std::function<void(Event event)> emit;
    std::function<void(const RankSet& ranks)> interrupt;
    std::function<void()> end_what_stays;  // of the current cell, when an interrupt and an abort have had their time
  };

  HangReporter(EventLoop& loop, WorkerGroup& workers, const SessionDirectory& directory, const SessionOptions& options,
               Host host);
  ~HangReporter();

  // ---- What happens ------------------------------------------------------------------------------------------------
  /// A cell has been sent to its ranks, and is served until cell_is_left().
  void cell_is_served();
  void cell_is_left();
  void cell_is_over(int64_t cell);
  /// A rank has left its cell (how: as CellRun::rank_status), having entered so many collectives of each group.
  void left(int rank, CellStatus how);
  void entered(int rank, const std::map<std::string, int64_t>& collectives) { entered_[rank] = collectives; }
  void waiting(CellRun& run, int rank, const protocol::Waiting& message);
  void long_wait(const CellRun& run, int rank, const protocol::LongWait& message);
  void output_came() { output_came_ = true; }
  /// False where the question was not one of its own.
  bool reply(int rank, const protocol::Reply& reply);
  /// The ranks are connected afresh: dead ranks are out of the question.
  void regrouped(const RankSet& ranks);
  void died(int rank) { dead_.insert(rank); }

  // ---- What is known -----------------------------------------------------------------------------------------------
  /// Whether it is finding out about a hang: the cell that hangs is not to be left meanwhile.
  bool is_busy() const { return gather_.has_value() || round_.has_value(); }
  const std::map<std::string, int64_t>& entered_by(int rank) { return entered_[rank]; }
  /// Whether a RankEvent has said that the rank waits in this cell.
  bool has_reported(int64_t cell, int rank) const {
    return reported_waits_.lower_bound({cell, rank, 0}) != reported_waits_.lower_bound({cell, rank + 1, 0});
  }
  /// Of `ranks`, those whose logs say that they sit in no collective.
  RankSet outside_collectives(const RankSet& ranks) const;
  /// A question about all live ranks, for picture().
  nlohmann::json question() const;
  /// All ranks at this moment, seen from a cell (none: no cell is open), with the answers to question().
  inspect::HangPicture picture(const CellRun* run, const std::map<int, nlohmann::json>& answers,
                               size_t recent = inspect::kRecentRecords) const;

 private:
  using Clock = EventLoop::Clock;
  struct Round {  // a question that is under way
    int64_t id;
    RankSet asked;
    std::map<int, nlohmann::json> answers;
    std::map<int, std::set<uint64_t>> in_flight;  // before: who has moved since was not waiting
    EventLoop::Timer limit;
  };
  enum Reason : unsigned { kReport = 1, kReportWaits = 2, kTimeLimit = 4 };

  void report_peers();
  void report_peers_soon();
  void report_soon(bool at_once);
  void look_at_logs();
  void look(unsigned reasons);
  void conclude();
  void report(CellRun& run, const inspect::HangPicture& picture);
  void report_waits(const CellRun& run, const inspect::HangPicture& picture);
  void report_waits_later();
  void look_back(const CellRun& run);
  void look_at_straggler(const CellRun& run);
  void time_limit();
  void arm_time_limit();
  void report_stall(const inspect::HangPicture& picture);
  std::map<int, std::set<uint64_t>> entries_in_flight() const;
  std::string log_path(int rank) const;
  void cancel(std::optional<EventLoop::Timer>& timer);

  EventLoop& loop_;
  WorkerGroup& workers_;
  const SessionDirectory& directory_;
  const SessionOptions& options_;
  Host host_;

  std::map<int, std::map<std::string, int64_t>> entered_;  // rank → group → collectives entered so far
  std::map<int, int64_t> leavings_;  // rank → how often it has left a cell
  std::map<int, CellStatus> how_left_;
  RankSet dead_;
  std::map<std::tuple<int64_t, int, int>, int64_t>
      reported_peers_;  // cell, rank, peer → which leaving of the peer it knows of

  std::set<std::string> reported_;  // hangs, since the ranks were connected
  std::set<std::tuple<int64_t, int, int64_t>> reported_waits_;  // cell, rank, entry in its log
  std::map<int64_t, int> long_waits_;  // cell → how many
  std::set<int64_t> reported_stragglers_;
  std::map<int64_t, RankSet> freed_;  // cell → ranks that sit in a hang that has been told, or were freed from one

  int64_t last_id_ = 0;  // negative: the runner's questions are positive
  std::optional<Round> round_;
  unsigned reasons_ = 0, next_reasons_ = 0;  // of the round, and for the one after it
  std::chrono::milliseconds again_{0};  // how long until a suspicion is looked into again
  std::optional<EventLoop::Timer> peers_, gather_, logs_, waits_timer_, limit_, recheck_;

  bool output_came_ = false;
  std::map<int, std::pair<uint64_t, std::set<uint64_t>>> places_;  // at the last look of the time limit
};

}  // namespace lockstep::shell
