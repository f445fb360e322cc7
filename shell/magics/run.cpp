// %run: a Python program, with the names of the cells.
#include <filesystem>

#include "protocol/error.h"
#include "shell/session/session_core.h"

namespace lockstep::shell {
namespace {

CellOutcome run(MagicCall& call) {
  const std::vector<std::string>& words = call.given.words();
  const std::string path = (std::filesystem::path(call.session.directory()) / words.at(0)).lexically_normal().string();
  if (!std::filesystem::is_regular_file(path)) throw UsageError("%run " + words[0] + ": there is no such file");
  nlohmann::json arguments = words;
  const CodeResult result =
      call.session.run_python("__import__('sys').argv[:] = " + arguments.dump(-1, ' ', true) + "; exec(compile(open(" +
                                  nlohmann::json(path).dump(-1, ' ', true) + ").read(), " +
                                  nlohmann::json(path).dump(-1, ' ', true) + ", 'exec'))",
                              {}, call.line);
  return {.status = result.status, .findings = {}};
}

const RegisterMagic kRun(
    {.name = "run",
     .summary = "runs a Python program on the ranks, in the names of the cells",
     .help = "FILE is looked for in the working directory (%cd), and sees ARGUMENT... in sys.argv. What "
             "it defines, later cells see.\n"
             "%load FILE runs a file cell by cell.",
     .takes = {{"FILE", "a program"}, {"[ARGUMENT...]", "of the program"}},
     .line = run,
     .only_with_python = true});

}  // namespace
}  // namespace lockstep::shell
