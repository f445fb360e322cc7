// %time, %%time and %%timeit: how long a cell takes to compile and to run, per rank.
#include <regex>

#include "protocol/error.h"
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

const MagicDescription kRepeats = {{"-n,--loops N", "so many loops in a run; default: as many as take 5 ms"},
                                   {"-r,--runs R", "so many runs; default: as many as take a second, 5 at least"}};

Repeats repeats_of(const MagicArguments& given) {
  return {.loops = given.count("--loops").value_or(0), .runs = given.count("--runs").value_or(0)};
}

/// Options stand before the code. Code of either language can begin with a sign, but not with `-n 3`.
CellOutcome timeit_line(MagicCall& call) {
  static const std::regex options(R"(^(\s*(-[nr]|--loops|--runs)\s+\d+(?=\s|$))*\s*)");
  std::smatch found;
  std::regex_search(call.arguments, found, options);
  const std::string code = found.suffix(), usage = "%timeit" + usage_of(kRepeats) + " CODE";
  if (code.empty()) throw UsageError("%timeit needs CODE, what to run: train_step(); usage: " + usage);
  CellSettings settings;
  settings.timeit = repeats_of(MagicArguments(kRepeats, usage, found.str()));
  timeit(call.session, code + ";", settings, 1);
  return {};
}

void time_cell(MagicCall&, CellSettings& settings) { settings.time = true; }
void timeit_cell(MagicCall& call, CellSettings& settings) { settings.timeit = repeats_of(call.given); }

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
     .takes = {kRepeats[0], kRepeats[1], {"CODE", "what to run: train_step()"}},
     .cell_takes = kRepeats,
     .line = timeit_line,
     .cell = timeit_cell,
     .verbatim = true,
     .in_jobs = true});

}  // namespace
}  // namespace lockstep::shell
