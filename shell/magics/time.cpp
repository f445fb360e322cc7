// %time, %%time and %%timeit: how long a cell takes to compile and to run, per rank.
#include "protocol/error.h"
#include "shell/session/session_core.h"
#include "shell/session/timing.h"

namespace lockstep::shell {
namespace {

CellOutcome time_line(MagicCall& call) {
  if (call.arguments.empty()) throw UsageError("%time needs what to run: %time train_step(); usage: %time CODE");
  const CodeResult result = call.session.run_code(call.arguments, {}, call.line);
  if (result.status != CellStatus::ok) return {};
  TimeReport report = time_report(result);
  call.session.message(std::move(report.text), std::move(report.data));
  return {};
}

void require_code_below(const MagicCall& call, const char* name) {
  if (!call.arguments.empty())
    throw UsageError(std::string("%%") + name + " takes nothing: what it times stands in the lines below");
}

void time_cell(MagicCall& call, CellSettings& settings) {
  require_code_below(call, "time");
  settings.time = true;
}

void timeit_cell(MagicCall& call, CellSettings& settings) {
  require_code_below(call, "timeit");
  settings.timeit = true;
}

const RegisterMagic kTime({.name = "time",
                           .usage = "%time CODE, %%time",
                           .summary = "per rank: time to compile and to run, and the spread",
                           .help = "With %%: of this cell. A cell is compiled once for all ranks.",
                           .line = time_line,
                           .cell = time_cell,
                           .in_jobs = true});

const RegisterMagic kTimeit(
    {.name = "timeit",
     .usage = "%%timeit",
     .summary = "runs this cell many times, equally often on all ranks: mean, deviation and best per rank",
     .help = "The cell is run as a block: what it declares is local to it. Collectives in it stay in step.",
     .line = {},
     .cell = timeit_cell});

}  // namespace
}  // namespace lockstep::shell
