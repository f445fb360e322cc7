// %time, %%time and %%timeit: how long a cell takes to compile and to run, per rank.
#include <algorithm>
#include <cstring>
#include <string>

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

/// Returns where the code begins, behind options such as `-n 3`.
size_t end_of_options(const std::string& text) {
  const auto behind = [&](const char* characters, size_t at) {
    return std::min(text.find_first_not_of(characters, at), text.size());
  };
  constexpr const char *kBlanks = " \t\r\n\f\v", *kDigits = "0123456789";
  for (size_t begin = behind(kBlanks, 0);;) {
    const size_t end = std::min(text.find_first_of(kBlanks, begin), text.size());
    const std::string name = text.substr(begin, end - begin);
    const size_t number = behind(kBlanks, end), after = behind(kDigits, number);
    const bool is_option = name == "-n" || name == "-r" || name == "--loops" || name == "--runs";
    if (!is_option || after == number || (after < text.size() && !std::strchr(kBlanks, text[after]))) return begin;
    begin = behind(kBlanks, after);
  }
}

/// Options stand before the code. Code of either language can begin with a sign, but not with `-n 3`.
CellOutcome timeit_line(MagicCall& call) {
  const size_t begin = end_of_options(call.arguments);
  const std::string code = call.arguments.substr(begin), usage = "%timeit" + usage_of(kRepeats) + " CODE";
  if (code.empty()) throw UsageError("%timeit needs CODE, what to run: train_step(); usage: " + usage);
  CellSettings settings;
  settings.timeit = repeats_of(MagicArguments(kRepeats, usage, call.arguments.substr(0, begin)));
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
