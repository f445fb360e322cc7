// %debug: Python's debugger at the frames of the last error of a rank. %%debug: a C++ cell with debug information.
//
// The debugger is in the rank, and the person is here: each line that they type is a piece of code of the cell, which
// runs one command (python/lockstep/session/_debugger.py).
#include <fmt/format.h>

#include "protocol/error.h"
#include "shell/session/session_core.h"

namespace lockstep::shell {
namespace {

constexpr const char* kDebugger = "__import__('lockstep.session._debugger', fromlist=['begin'])";

/// Has the debugger of the rank call something. Returns its answer; null where the rank did not come to one.
nlohmann::json ask_debugger(const MagicCall& call, int rank, const std::string& what) {
  CellSettings settings;
  settings.ranks = RankSet{rank};
  std::vector<ValueEvent> values;
  call.session.run_capturing(fmt::format("{}.{}", kDebugger, what), settings, call.line, values);
  return values.empty() ? nlohmann::json() : values.front().data;
}

/// Returns the rank that is meant: the one that is named, or the only one that has raised an exception.
int rank_to_debug(const MagicCall& call) {
  const std::optional<std::string> word = call.given.word();
  const RankSet ranks = word ? call.session.parse_ranks(*word) : call.session.raised() & call.session.live_ranks();
  if (ranks.empty()) throw UsageError("%debug: no cell has raised an exception on a rank that lives");
  if (ranks.size() > 1)
    throw UsageError(fmt::format("%debug: {}{}; name one: %debug {}", ranks.words(),
                                 word ? " are several" : " have raised an exception", ranks.ranks().front()));
  return ranks.ranks().front();
}

CellOutcome debug_python(MagicCall& call) {
  if (call.session.options().job)
    throw UsageError("%debug is for sessions; at a prompt over a job, %where, %up and %down select a frame");
  if (!call.session.options().read_line)
    throw UsageError("%debug asks for commands, and nobody types here: use it at a prompt or in a notebook");
  call.session.start();
  const int rank = rank_to_debug(call);
  const nlohmann::json begun = ask_debugger(call, rank, "begin()");
  if (begun.is_object() && begun.contains("error")) throw UsageError("%debug: " + begun["error"].get<std::string>());
  const std::string prompt = fmt::format("(Pdb) rank {}> ", rank);
  while (call.session.live_ranks().contains(rank)) {
    const auto line = call.session.options().read_line(prompt);
    const nlohmann::json answer =
        ask_debugger(call, rank, line ? "run(" + nlohmann::json(*line).dump(-1, ' ', true) + ")" : "end()");
    if (!line || (answer.is_object() && answer.value("over", false))) break;
  }
  return {};
}

void debug_cell(MagicCall&, CellSettings& settings) { settings.debug = true; }

const RegisterMagic kDebug(
    {.name = "debug",
     .summary = "this cell is compiled with full debug information; in Python: pdb at the last exception",
     .help = "In C++, gdb -p PID (of a rank: %dist_status) then shows locals; `break cell_7.cpp:4` works without it, "
             "too.\nIn Python, commands of pdb at the frames of the last exception of a rank: p x, up, l, !x = 1. q, "
             "Ctrl-D or an interrupt ends it.",
     .takes = {{"[RANK]", "where several ranks have raised one"}},
     .cell = debug_cell,
     .job_line = debug_python});

}  // namespace
}  // namespace lockstep::shell
