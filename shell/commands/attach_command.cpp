// `lockstep attach [JOB]` is a prompt over a Python job of the same user, whose ranks are in lockstep.breakpoint().
#include <memory>

#include "protocol/error.h"
#include "shell/commands/command.h"
#include "shell/commands/script_flags.h"
#include "shell/commands/script_run.h"
#include "shell/jobs/find_job.h"
#include "shell/scripts/script.h"
#include "shell/terminal/terminal.h"

namespace lockstep::shell {
namespace {

struct AttachOptions {
  std::string job;
  RunOptions run;
};

std::function<int()> set_up_attach(CLI::App& app) {
  auto options = std::make_shared<AttachOptions>();
  app.add_option("job", options->job,
                 "The job: its id, or the process id of one of its ranks. Not needed if one job of yours runs");
  app.add_option("--run", options->run.files,
                 "Run the cells of these files (Python in percent format, .ipynb) instead of opening a prompt")
      ->type_name("FILE");
  add_script_options(app, options->run);
  app.add_option("--cell-timeout", options->run.session.cell_timeout_s, "Interrupt a cell after this many seconds")
      ->type_name("S")
      ->check(CLI::NonNegativeNumber);
  app.footer(
      "The ranks of the job stop in lockstep.breakpoint(). At the prompt, `continue` lets the job train on to its "
      "next\n"
      "breakpoint, Ctrl-D lets it train on and leaves, `detach` leaves it alone for good. Exit codes are those of "
      "run.");
  return [options, &app] {
    if (options->run.files.empty())
      for (const char* name : {"--json", "--junit", "--write", "--show-code", "--answers", "--keep-going"})
        if (app.count(name) > 0) throw UsageError(std::string(name) + " is for cells of files: --run FILE");
    check_script_options(options->run);
    options->run.session.job = find_job(options->job).id;
    if (options->run.files.empty()) return run_terminal(options->run.session, /*start_now=*/true);
    std::vector<Script> scripts;
    for (const std::string& path : options->run.files)
      scripts.push_back({.name = path, .cells = read_script(path, Language::python)});
    return ScriptRun(options->run, std::move(scripts)).run();
  };
}

const RegisterCommand kAttach({"attach", "A prompt over a running Python job", set_up_attach});

}  // namespace
}  // namespace lockstep::shell
