// %checkpoint writes what the names of the session hold into files, %restore reads it back.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "protocol/error.h"
#include "shell/magics/inspectors/inspector_magic.h"
#include "shell/session/session_core.h"

namespace lockstep::shell {
namespace {

/// Variables that all of `ranks` have. Closures are code, which cells make again.
std::vector<std::string> variables(SessionCore& session, const RankSet& ranks) {
  std::vector<std::string> found, absent;
  const auto response = session.ask(protocol::ListNames{});
  if (const auto* names = std::get_if<protocol::Names>(&response))
    for (const protocol::Name& name : names->names)
      if (name.kind == "variable" && name.type.find("(lambda") == std::string::npos)
        ((ranks - name.ranks).empty() ? found : absent).push_back(name.name);
  if (!absent.empty())
    session.message(fmt::format("left out, since not all ranks have {}: {}", absent.size() == 1 ? "it" : "them",
                                fmt::join(absent, ", ")));
  return found;
}

CellOutcome run(MagicCall& call, const std::string& method) {
  const bool reads = method == "read";
  SessionCore& session = call.session;
  const std::string folder = path_of_ranks(session, call.given.words().front());
  CellSettings settings = inspector_settings(call);
  settings.keeps_names = !reads;
  session.check_alive(session.default_ranks());
  if (session.options().has_python_ranks()) {
    settings.own_names = !reads;  // %restart lists what has read a checkpoint among what does not run again
    const std::string code =
        fmt::format("__import__('lockstep.session._checkpoint', fromlist=['{0}']).{0}({1})", method, quoted(folder));
    return {.status = session.run_python(code, settings, call.line).status, .findings = {}};
  }
  std::string code = "__lockstep::Checkpoint(" + quoted(folder) + ")";
  for (const std::string& name : variables(session, *settings.ranks))
    code += ".add(" + quoted(name) + ", " + name + ")";
  return run_inspector(call, code + "." + method + "()", settings, /*shows=*/true);
}

CellOutcome checkpoint(MagicCall& call) { return run(call, "write"); }
CellOutcome restore(MagicCall& call) { return run(call, "read"); }

const RegisterMagic kCheckpoint(
    {.name = "checkpoint",
     .summary = "writes what the names of the session hold into files, one a rank",
     .help =
         "The files are rank0.pt, rank1.pt, … in FOLDER, on the machine of each rank. Written are tensors, modules, "
         "wrappers,\noptimizers, numbers, strings and containers of them, and the generators; the rest is listed. "
         "Files of an older\ncheckpoint are replaced when all ranks have written theirs.",
     .takes = {"FOLDER"},
     .line = checkpoint,
     .in_sessions = true});

const RegisterMagic kRestore(
    {.name = "restore",
     .summary = "reads what %checkpoint has written back into the names that hold it",
     .help =
         "The names have to be defined: run the cells that define them first (lockstep run --journal ID does in a "
         "new session).\nWhat does not fit, or is not there, keeps what it has and is listed. As many ranks as when "
         "it was written.\nIn Python, plain values need no definition, and a file runs no code.",
     .takes = {"FOLDER"},
     .line = restore,
     .in_sessions = true});

}  // namespace
}  // namespace lockstep::shell
