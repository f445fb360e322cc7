// `lockstep attach [JOB]` is a prompt over a Python job of the same user, whose ranks are in lockstep.breakpoint().
#include <fmt/format.h>

#include <cstdlib>
#include <memory>

#include "protocol/error.h"
#include "shell/commands/command.h"
#include "shell/commands/script_flags.h"
#include "shell/commands/script_run.h"
#include "shell/commands/session_flags.h"
#include "shell/hosts/host.h"
#include "shell/jobs/find_job.h"
#include "shell/processes/launcher.h"
#include "shell/scripts/script.h"
#include "shell/terminal/terminal.h"

namespace lockstep::shell {
namespace {

struct AttachOptions {
  std::string job, hosts, slurm, pods;
  RunOptions run;
};

/// Returns where ranks of the job are besides this machine, as SessionOptions has it. Within a job of Slurm that has
/// several nodes these are its nodes.
std::string places_of(const AttachOptions& options) {
  if (!options.slurm.empty()) return "slurm:" + options.slurm;
  if (!options.pods.empty()) return "kubectl:" + options.pods;
  if (!options.hosts.empty()) return options.hosts;
  if (const auto place = slurm_place()) return "slurm:" + place->job;
  // A step that joins the job from outside (srun --jobid) is not told how many nodes the job has.
  const char *const job = std::getenv("SLURM_JOB_ID"), *const step = std::getenv("SLURM_STEP_ID");
  return job && step && !std::getenv("SLURM_JOB_NUM_NODES") ? fmt::format("slurm:{}", job) : "";
}

std::function<int()> set_up_attach(CLI::App& app) {
  auto options = std::make_shared<AttachOptions>();
  app.add_option("job", options->job,
                 "The job: its id, or the process id of one of its ranks. Not needed if one job of yours runs");
  CLI::Option* const hosts = app.add_option("--hosts", options->hosts,
                                            "Other machines that have ranks of the job, which are asked through ssh")
                                 ->type_name("LIST");
  CLI::Option* const slurm = app.add_option("--slurm", options->slurm,
                                            "A job of Slurm: its nodes are asked through srun. Not needed within it")
                                 ->type_name("JOB");
  CLI::Option* const pods = app.add_option("--kubectl", options->pods,
                                           "Pods that have ranks of the job, which are asked through kubectl exec")
                                ->type_name("PODS");
  hosts->excludes(slurm)->excludes(pods);
  slurm->excludes(pods);
  app.add_option("--remote-program", options->run.session.remote_program,
                 "The path of lockstep on other machines (default: that of this one)")
      ->type_name("PATH");
  app.add_option("--run", options->run.files,
                 "Run the cells of these files (Python in percent format, .ipynb) instead of opening a prompt")
      ->type_name("FILE");
  add_script_options(app, options->run);
  add_journal_options(app, options->run.session);
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
    SessionOptions& session = options->run.session;
    session.hosts = places_of(*options);
    if (session.remote_program.empty()) session.remote_program = find_program("lockstep");
    session.job = session.hosts.empty() ? find_job(options->job).id : options->job;
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
