// Finds out who waits for whom while cells run, and reports it: a proven hang as a finding, once; a long wait as the
// state of a rank.
//
// Nothing is looked at while all is well. A look is caused by an event: a rank reports that it waits for ranks that
// will not come (Waiting) or that it waits for long (LongWait), or the limit of --hang-timeout has passed. It reads the
// collective logs of all ranks. Where they allow a hang, or a wait is to be reported, the I/O threads of the ranks are
// asked for native stacks and lines of code (an inquiry), and inspectors/hang/analysis.h judges. While logs allow
// a hang that the stacks do not show yet, the look is repeated, less and less often.
//
// It lives on the session's thread. Nothing here waits: answers come back through reply().
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>

#include "inspectors/hang/picture.h"
#include "shell/cells/cell_services.h"
#include "shell/cells/hang_pictures.h"
#include "shell/cells/open_cells.h"
#include "shell/cells/peer_departures.h"
#include "shell/processes/deadline.h"

namespace lockstep::shell {

class HangReporter {
 public:
  /// The functions of the cell runner that the reporter needs.
  struct Host {
    std::function<void(Finding finding, int64_t number)> add_finding;
    std::function<void(const RankSet& ranks)> interrupt;
    std::function<void()> end_what_stays;  // ends the ranks of the served cell that do not leave it soon
  };

  HangReporter(const CellServices& services, OpenCells& cells, Host host);

  // ---- What happens ------------------------------------------------------------------------------------------------
  /// Begins with a cell that has been sent to its ranks, and is served until cell_is_left().
  void cell_is_served();
  void cell_is_left();
  void cell_is_over(int64_t cell);
  /// Notes that a rank has left its cell.
  void left(int rank, CellStatus how);
  /// Notes that a rank has entered so many collectives of each group.
  void entered(int rank, const std::map<std::string, int64_t>& collectives) { departures_.entered(rank, collectives); }
  void waiting(CellRun& run, int rank, const protocol::Waiting& message);
  /// Notes that a rank of the cell has waited in a collective for a while.
  void long_wait(const CellRun& run);
  void output_came() { output_came_ = true; }
  /// Takes an answer. Returns false where another class has asked the question.
  bool reply(int rank, const protocol::Reply& reply);
  /// Notes that the ranks are connected afresh.
  void regrouped(const RankSet& ranks);
  void died(int rank) { departures_.died(rank); }

  // ---- What is known -----------------------------------------------------------------------------------------------
  /// Whether the reporter looks into a hang. The cell that hangs is not to be left meanwhile.
  bool is_busy() const { return gather_.is_set() || inquiry_.has_value(); }
  const std::map<std::string, int64_t>& entered_by(int rank) { return departures_.entered_by(rank); }
  /// Whether a RankEvent has shown that the rank waits in this cell.
  bool has_reported(int64_t cell, int rank) const {
    return reported_waits_.lower_bound({cell, rank, 0}) != reported_waits_.lower_bound({cell, rank + 1, 0});
  }
  /// Whether a hang that has been reported is that of this call.
  bool has_reported(const std::string& group, int64_t seq) const;
  const HangPictures& pictures() const { return pictures_; }

 private:
  struct Inquiry {  // a question to all ranks that is under way
    int64_t id;
    unsigned reasons;
    RankSet asked;
    HangPictures::Answers answers;
    std::map<int, std::set<uint64_t>> in_flight;  // before the question: a rank that has moved since was not waiting
  };
  enum Reason : unsigned { kReport = 1, kReportWaits = 2, kTimeLimit = 4 };

  void show_wait(CellRun& run, int rank, const protocol::Waiting& wait);
  void report_soon(bool at_once);
  void look_at_logs_soon();
  void look_at_logs();
  void look(unsigned reasons);
  void conclude();
  void report(CellRun& run, const inspect::HangPicture& picture);
  void report_waits(const CellRun& run, const inspect::HangPicture& picture);
  void report_waits_later();
  bool is_unreported(const CellRun& run, const inspect::RankPicture& rank, const inspect::RankWait& wait) const;
  void look_back(const CellRun& run);
  void look_at_straggler(const CellRun& run);
  void time_limit();
  void arm_time_limit();
  void report_stall(const inspect::HangPicture& picture);

  const CellServices& services_;
  OpenCells& cells_;
  Host host_;
  HangPictures pictures_;
  PeerDepartures departures_;

  std::set<std::string> reported_;  // hangs, since the ranks were connected
  std::set<std::tuple<int64_t, int, int64_t>> reported_waits_;  // cell, rank, entry in its log
  std::map<int64_t, int> long_waits_;  // cell → how many
  std::set<int64_t> reported_stragglers_;
  std::map<int64_t, RankSet> freed_;  // cell → ranks that are in a hang that has been reported, or were freed from one

  int64_t last_id_ = 0;  // negative: those of RankQueries are positive
  std::optional<Inquiry> inquiry_;
  unsigned next_reasons_ = 0;  // for the inquiry after it
  std::chrono::milliseconds again_{0};  // how long until a suspicion is looked into again
  Deadline gather_, logs_, waits_, limit_, recheck_, answers_;

  bool output_came_ = false;
  std::map<int, HangPictures::Progress> progress_;  // at the last look of the time limit
  std::optional<FindingKind> stalled_once_;  // what the first of two looks has seen
};

}  // namespace lockstep::shell
