// Prepares a cell: connects its ranks with one another, compiles it, and loads it on all of them. A death, an interrupt
// or a limit ends each of the three; nothing of the cell has run then.
//
//   idle ─→ connecting ─→ compiling ─→ loading ─→ idle      the cell is an OpenCell from loading on
//     ↑         └──────────────┴─→ stopped                  by an interrupt, or the death of one of its ranks
//     └──────────────────────────────┘
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "shell/cells/cell_output.h"
#include "shell/cells/cell_request.h"
#include "shell/cells/cell_result.h"
#include "shell/cells/cell_services.h"
#include "shell/cells/cell_stopper.h"
#include "shell/cells/group_connections.h"
#include "shell/cells/open_cells.h"
#include "shell/cells/past_cells.h"
#include "shell/cells/repeatable_objects.h"

namespace lockstep::shell {

/// A cell that may run, or why it may not.
struct PreparedCell {
  OpenCell* cell = nullptr;  // null: it was not opened, and the CodeResult says why
  bool is_loaded = false;  // false: it was opened and could not be loaded; the errors have been emitted
  CellObject object;  // the object to run
};

class CellPreparation {
 public:
  enum class Phase { idle, connecting, compiling, loading };

  CellPreparation(const CellServices& services, OpenCells& cells, CellOutput& output, const CellStopper& stopper,
                  PastCells& past)
      : services_(services), cells_(cells), output_(output), stopper_(stopper), past_(past) {}

  /// Lives while a cell is prepared and served, and ends the preparation however that ends.
  class Scope {
   public:
    explicit Scope(CellPreparation& preparation) : preparation_(preparation) {}
    ~Scope() { preparation_.phase_ = Phase::idle; }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    CellPreparation& preparation_;
  };

  /// Prepares a cell of `ranks` from here on: the caller connects them.
  [[nodiscard]] Scope begin(const RankSet& ranks, int64_t number);
  /// Whether the cell can't be opened any more: `result` says why.
  bool is_stopped(CodeResult& result) const;
  /// Compiles and loads the cell.
  PreparedCell prepare(const CellRequest& request, CodeResult& result);
  /// Opens a cell that has nothing to compile and to load.
  OpenCell& open(const CellRequest& request);

  Phase phase() const { return phase_; }
  EventLoop::Clock::time_point phase_since() const { return phase_since_; }
  int64_t number() const { return number_; }  // of the cell that is, or was, prepared
  /// Called when `rank` has died in no cell. Returns whether a cell is being prepared for it, which is stopped then.
  bool rank_died(int rank);
  /// Whether ranks of the cell have died since begin(), before it was opened.
  bool has_lost_ranks() const { return !lost_.empty(); }
  /// Forgets loaded objects, which may not be on all ranks any more.
  void forget_objects() { repeatable_.forget(); }

  /// Tells the compiler how far the ranks came, once.
  void settle(OpenCell& cell, bool loaded);

 private:
  void enter(Phase phase) {
    phase_ = phase;
    phase_since_ = EventLoop::Clock::now();
  }
  OpenCell& open(int64_t id, const CellRequest& request, bool has_objects);
  std::optional<PreparedCell> prepare_again(const CellRequest& request, int64_t id);
  bool compile(const CellRequest& request, int64_t id, CodeResult& result, FromCompiler& answer);
  void send(const CellRun& run, const std::string& text, const protocol::CompiledObject& object, std::string bytes);
  bool load(OpenCell& cell, const std::string& text, const protocol::Compiled& compiled,
            std::vector<std::string>& frames);
  void report_slow_load(const CellRun& run) const;
  void report_not_loaded(OpenCell& cell, double limit_s) const;
  void write_source(const CellRequest& request, const std::string& source) const;

  const CellServices& services_;
  OpenCells& cells_;
  CellOutput& output_;
  const CellStopper& stopper_;
  PastCells& past_;

  Phase phase_ = Phase::idle;
  EventLoop::Clock::time_point phase_since_;
  RankSet ranks_, lost_;  // of the cell; those of them that have died before it was opened
  int64_t number_ = 0;
  RepeatableObjects repeatable_;
  std::vector<std::pair<int64_t, int64_t>>
      repeats_;  // cells that ran the code of an earlier one, of which the compiler has not heard
};

}  // namespace lockstep::shell
