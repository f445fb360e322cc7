// %load runs the cells of a session script in this session.
#include <filesystem>

#include "shell/scripts/script.h"
#include "shell/session/session_core.h"

namespace lockstep::shell {
namespace {

CellOutcome load(MagicCall& call) {
  const std::vector<ScriptCell> cells =
      read_script((std::filesystem::path(call.session.directory()) / *call.given.word()).lexically_normal().string(),
                  call.session.language());
  std::vector<ScriptCell>& queued = call.session.settings().queued;
  queued.insert(queued.end(), cells.begin(), cells.end());
  return {};
}

const RegisterMagic kLoad({.name = "load",
                           .summary = "runs the cells of a session script or notebook here, up to the first that fails",
                           .help = "FILE is looked for in the working directory (%cd). Its cells come after this one, "
                                   "as if they were typed; names and\n"
                                   "objects stay. A cell tagged raises-exception may fail.",
                           .takes = {{"FILE", "a session script or a notebook"}},
                           .line = load,
                           .in_jobs = true});

}  // namespace
}  // namespace lockstep::shell
