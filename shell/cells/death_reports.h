// Reports ranks that have died: at once that they are gone; why, with the errors of the cell or earlier where the
// others run on; and between cells what the deaths mean for the next one.
#pragma once
#include <string>

#include "shell/cells/cell_services.h"
#include "shell/cells/open_cells.h"
#include "shell/processes/deadline.h"

namespace lockstep::shell {

class DeathReports {
 public:
  DeathReports(const CellServices& services, OpenCells& cells)
      : services_(services), cells_(cells), deadline_(services.loop) {}

  /// Reports that a rank has died; `where` is of the form " in cell 7". `matters`: it took cells, and later ones lack it.
  void died(int rank, const protocol::CellError& error, const std::string& where, bool matters = true);
  /// Reports why a rank died, where no cell reports it; `where` is of the form " while no cell ran on it".
  void explain(int rank, const protocol::CellError& error, const std::string& where);
  /// Leaves the report on ranks of an open cell to its end. Where the others run on for a while, it comes earlier.
  void explain_later();
  /// Shows in a terminal what the deaths since the last call mean for the next cell, and what can be done.
  void advise();

 private:
  void explain_now();

  const CellServices& services_;
  OpenCells& cells_;
  RankSet unadvised_;
  Deadline deadline_;
};

}  // namespace lockstep::shell
