// %time, %%time and %%timeit: how long a cell takes to compile and to run, per rank.
#include "shell/session/session_core.h"
#include "shell/session/timing.h"

namespace lockstep::shell {
namespace {

CellOutcome time_line(MagicCall& call) {
  const CodeResult result = call.session.run_code(call.arguments, {}, call.line);
  if (result.status != CellStatus::ok) return {};
  TimeReport report = time_report(result);
  call.session.message(std::move(report.text), std::move(report.data));
  return {};
}

CellOutcome timeit_line(MagicCall& call) {
  timeit(call.session, call.arguments + ";", {}, 1);
  return {};
}

void time_cell(MagicCall&, CellSettings& settings) { settings.time = true; }
void timeit_cell(MagicCall&, CellSettings& settings) { settings.timeit = true; }

const RegisterMagic kTime({.name = "time",
                           .summary = "per rank: time to compile and to run, and the spread",
                           .help = "With %%: of this cell. A cell is compiled once for all ranks.",
                           .takes = {{"CODE", "what to run: train_step()"}},
                           .line = time_line,
                           .cell = time_cell,
                           .verbatim = true,
                           .in_jobs = true});

const RegisterMagic kTimeit(
    {.name = "timeit",
     .summary = "runs this cell many times, equally often on all ranks: mean, deviation and best per rank",
     .help = "The cell is run as a block: what it declares is local to it. Collectives in it stay in step.",
     .takes = {{"CODE", "what to run: train_step()"}},
     .line = timeit_line,
     .cell = timeit_cell,
     .verbatim = true,
     .in_jobs = true});

}  // namespace
}  // namespace lockstep::shell
