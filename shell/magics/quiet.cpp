// %quiet leaves out what is only a note.
#include <nlohmann/json.hpp>

#include "shell/session/session_core.h"

namespace lockstep::shell {
namespace {

CellOutcome quiet(MagicCall& call) {
  const std::optional<std::string> word = call.given.word();
  bool& quiet = call.session.settings().quiet;
  quiet = word ? *word == "on" : !quiet;
  call.session.message(quiet ? "" : "notes are shown again", nlohmann::json{{"quiet", quiet}});
  return {};
}

const RegisterMagic kQuiet({.name = "quiet",
                            .summary = "leaves out notes; output, values, errors and faults stay",
                            .help = "On: findings that are no faults (ok and notes), states of ranks and the words at "
                                    "the start are not shown to people. --json\n"
                                    "and exit codes are as ever. Without on or off: the other way round.",
                            .takes = {"[on|off]"},
                            .line = quiet,
                            .in_jobs = true});

}  // namespace
}  // namespace lockstep::shell
