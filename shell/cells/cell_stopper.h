// Gets ranks out of the cell that is served: after Ctrl-C, after a time limit, and when the program ends. Which step
// comes next is in stop_machines.h; this class sends the messages and keeps the deadlines.
#pragma once
#include "shell/cells/cell_services.h"
#include "shell/cells/open_cells.h"
#include "shell/cells/stop_machines.h"
#include "shell/cells/stuck_ranks.h"
#include "shell/processes/deadline.h"

namespace lockstep::shell {

class CellStopper {
 public:
  CellStopper(const CellServices& services, OpenCells& cells);

  /// Begins a new cell. Earlier requests of the user do not concern it, unless the program ends.
  void begin();
  /// Whether the user has interrupted the cell that is prepared or served.
  bool is_interrupted() const { return is_interrupted_; }

  /// Runs the served cell: --cell-timeout begins, and an interrupt that came while it was prepared is sent.
  void start();
  /// Ends all of this, since the cell is not served any more.
  void stop();
  /// Whether the user wants the prompt back, and ranks of a job have not come out of the cell.
  bool gives_up() const { return gives_up_; }
  /// Whether a time limit will end the served cell.
  bool has_limit() const { return limit_deadline_.is_set(); }

  /// Interrupts all cells of `ranks`.
  void interrupt(const RankSet& ranks);
  /// Interrupts the served cell at Ctrl-C; a second one offers to end the ranks that did not come back, a third ends
  /// them (UserStop says when these count).
  void user_interrupt();
  /// Interrupts the served cell, since the program ends, and ends ranks that do not come back within seconds.
  void leave();
  /// Gives the ranks this time, after leave().
  void give_time(EventLoop::Clock::duration time) {
    if (limit_deadline_.is_set()) limit_deadline_.set_after(time, [this] { limit_step(); });
  }
  /// Takes leave() back for the cells that follow.
  void stay() { is_leaving_ = false; }
  /// Ends the ranks of the served cell that are still in it after a while: an interrupt and an abort have been sent.
  void end_what_stays();
  /// Takes the answer of a rank that was asked where it is. Returns false where somebody else has asked.
  bool reply(int rank, const protocol::Reply& reply) { return stuck_.reply(rank, reply); }

 private:
  void user_step(StopStep step);
  void remind();
  void user_step_in_job(StopStep step, const RankSet& active);
  void limit_step();
  void end(const RankSet& ranks);

  const CellServices& services_;
  OpenCells& cells_;
  UserStop user_;
  LimitStop limit_;
  StuckRanks stuck_;
  bool is_interrupted_ = false;
  bool is_leaving_ = false;
  bool gives_up_ = false;
  Deadline user_deadline_, limit_deadline_;
};

}  // namespace lockstep::shell
