#include "worker/death_error.h"

#include "worker/cell/cell_error.h"

namespace lockstep::worker {

protocol::CellError describe_death(const DeathReport& report, Symbols& symbols) {
  protocol::CellError error;
  error.type = report.signal ? signal_name(report.signal) : report.how;
  error.message = describe(report);
  set_place(error, symbols.resolve(report.stack), symbols);
  return error;
}

}  // namespace lockstep::worker
