// %cd and %pwd: the working directory of the ranks is also where #include "..." and %load look.
#include <cstdlib>
#include <filesystem>

#include "protocol/error.h"
#include "shell/session/session_core.h"
#include "shell/text/suggest.h"

namespace lockstep::shell {
namespace {

namespace fs = std::filesystem;

fs::path home() {
  const char* home = std::getenv("HOME");
  if (!home || !*home) throw UsageError("HOME is not set; name the folder: %cd FOLDER");
  return home;
}

CellOutcome cd(MagicCall& call) {
  const std::optional<std::string> word = call.given.word();
  const fs::path now = call.session.directory().empty() ? fs::current_path() : fs::path(call.session.directory());
  fs::path target = !word || *word == "~" ? home() : word->starts_with("~/") ? home() / word->substr(2) : now / *word;
  target = target.lexically_normal();
  std::error_code error;
  if (!fs::is_directory(target, error)) {
    if (fs::exists(target, error)) throw UsageError(target.string() + " is no folder; name the folder that holds it");
    const fs::path parent = target.has_filename() ? target.parent_path() : target.parent_path().parent_path();
    const std::string name = target.has_filename() ? target.filename() : target.parent_path().filename();
    std::vector<std::string> names;
    for (fs::directory_iterator entry(parent, error), end; !error && entry != end; entry.increment(error))
      if (entry->is_directory(error)) names.push_back(entry->path().filename());
    throw UsageError("there is no folder " + target.string() + did_you_mean(name, names));
  }
  protocol::Configure change;
  change.directory = target.string();
  call.session.configure(change);
  call.session.message(target.string());
  return {};
}

const RegisterMagic kCd({.name = "cd",
                         .summary = "working directory of all ranks, and of #include \"...\"",
                         .help = "Relative to the folder at hand; without FOLDER, the home folder. Files that cells "
                                 "open, #include \"...\", %load and %save\n"
                                 "are looked for there.",
                         .takes = {"[FOLDER]"},
                         .line = cd,
                         .in_jobs = true});

CellOutcome pwd(MagicCall& call) {
  call.session.message(call.session.directory(), {{"directory", call.session.directory()}});
  return {};
}

const RegisterMagic kPwd({.name = "pwd",
                          .summary = "the working directory of all ranks",
                          .help = "%cd changes it.",
                          .line = pwd,
                          .at_any_time = true,
                          .in_jobs = true});

}  // namespace
}  // namespace lockstep::shell
