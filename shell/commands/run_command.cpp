// `lockstep run FILE…` runs the cells of session scripts, in order, in one session.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <utility>

#include "protocol/error.h"
#include "shell/built/built_objects.h"
#include "shell/commands/command.h"
#include "shell/commands/journal_views.h"
#include "shell/commands/script_flags.h"
#include "shell/commands/script_run.h"
#include "shell/commands/session_flags.h"
#include "shell/hosts/host.h"
#include "shell/hosts/mpi_hosts.h"
#include "shell/jobs/job_run.h"
#include "shell/jobs/session_hosts.h"
#include "shell/processes/launcher.h"
#include "shell/scripts/parameters.h"
#include "shell/scripts/script.h"
#include "shell/session/session_journal.h"
#include "shell/terminal/terminal.h"
#include "shell/text/text_output.h"

namespace lockstep::shell {
namespace {

/// Reads a file that `lockstep build` made: its cells, and from now on its objects.
std::vector<Script> read_built(const std::string& path, SessionOptions& session) {
  if (session.debug_cells)
    throw UsageError("--debug-cells: the cells of " + path +
                     " are compiled already; give the option to lockstep build");
  if (!session.include_dirs.empty())
    throw UsageError("-I: the cells of " + path + " are compiled already; give the option to lockstep build");
  const auto file = std::make_shared<const BuiltFile>(read_built_file(path));
  session.debug_cells = file->debug_cells;
  if (!session.num_processes && session.gpu_ids.empty()) session.num_processes = file->ranks;
  session.objects = [file, path, started = size_t{0}](EventLoop&, const CompilerOptions& options, const auto&) mutable {
    return std::make_unique<BuiltObjects>(file, path, started++, options);
  };
  std::vector<Script> scripts;
  for (const BuiltScript& script : file->scripts) scripts.push_back({.name = path, .cells = script.cells});
  return scripts;
}

/// The cells of Python files run on Python ranks, without --python, too.
Language language_of_files(const RunOptions& options) {
  if (options.session.python) return Language::python;
  const auto is_python = [](const std::string& path) { return language_of_script(path) == Language::python; };
  const auto count = std::ranges::count_if(options.files, is_python);
  if (count > 0 && count < static_cast<std::ptrdiff_t>(options.files.size()))
    throw UsageError(
        *std::ranges::find_if(options.files, is_python) +
        " has Python cells, and others of the files have C++: the ranks of a run have one language; %%cpp cells "
        "may stand among Python ones");
  return count > 0 ? Language::python : Language::cpp;
}

std::vector<Script> read_files(RunOptions& options) {
  std::vector<Script> scripts;
  const Language language = language_of_files(options);
  if (language == Language::python && !options.session.python) options.session.python = "";
  for (const auto& path : options.files) {
    if (!path.ends_with(".lockstep") && !is_built_file(path)) {
      scripts.push_back({.name = path == "-" ? "<stdin>" : path,
                         .cells = with_parameters(read_script(path, language), options.session.arguments, language)});
      continue;
    }
    if (options.files.size() > 1)
      throw UsageError(path + " is a built file, and those run alone: lockstep build puts several scripts into one");
    return read_built(path, options.session);
  }
  return scripts;
}

/// Reads the cells of a journal, and takes the options of its session for those that are not given.
std::vector<Script> read_cells_again(RunOptions& options) {
  const JournalInfo journal = find_journal(options.journal);
  const JournalContent content = read_journal(journal.path);
  if (content.description.contains("job") && !content.description["job"].is_null())
    throw UsageError(journal.id +
                     " was a prompt over a Python job, whose ranks only the job has; `lockstep sessions show " +
                     journal.id + " --export FILE.py` writes a script for lockstep attach --run");
  CellsAgain again = cells_again(content);
  if (again.cells.empty()) throw UsageError("the journal of " + journal.id + " has no cell to run");
  if (const std::string gaps = gaps_of(journal, content); !gaps.empty()) write_message(gaps);
  for (const std::string& cell : again.left_out) write_message("left out: " + cell);
  set_options_as(content.description, content.ranks, options.session);
  return {{.name = journal.id, .cells = std::move(again.cells)}};
}

/// Has the options that only a Python job has.
struct OfJobs {
  std::string findings;
  int tail = 0;
};

/// Returns the machines of the processes that mpirun has started. Nodes of Slurm's allocation may have no ssh.
std::vector<Host> hosts_of_mpi() {
  const auto slurm = slurm_place();
  if (!slurm) return hosts_of_mpi_place();
  try {
    std::vector<Host> hosts = slurm_hosts(slurm->job);
    std::erase_if(hosts, [](const Host& each) { return each.name == this_host(); });
    return hosts;
  } catch (const StartError& error) {
    write_message(fmt::format("the nodes of this job are asked by ssh: {}", error.what()));
    return hosts_of_mpi_place();
  }
}

/// The first of the processes that mpirun has started looks on the machines of the others, as one of srun's does. The
/// others can't tell whether it knows their machine.
void choose_hosts_of_mpi(const MpiPlace& place, const SessionOptions& given, JobOptions& options) {
  options.is_judged_elsewhere = place.task > 0;
  if (options.is_judged_elsewhere) return;
  options.hosts = given.hosts.empty() ? hosts_of_mpi() : hosts_of(given.hosts);
  if (options.hosts.empty())
    write_message(
        "ranks on other machines are not seen, since mpirun does not tell this machine which they are: name them with "
        "lockstep run --hosts, or put lockstep run before mpirun (docs/clusters.md)");
  options.asks_own_relay = place.has_others_here;
  if (options.asks_own_relay) options.hosts.push_back({.name = this_host(), .command = {}});
}

/// Chooses the machines on which the job's ranks are looked for: those of --hosts, or those of Slurm's job. Of the
/// processes of a step the first one looks on the others' machines.
void choose_hosts_of_job(const SessionOptions& given, JobOptions& options) {
  if (given.hosts == "none") return;
  options.remote_program = given.remote_program.empty() ? find_program("lockstep") : given.remote_program;
  if (const auto place = mpi_place()) {
    choose_hosts_of_mpi(*place, given, options);
    return;
  }
  if (!given.hosts.empty()) {
    options.hosts = hosts_of(given.hosts);
    return;
  }
  const std::string launcher = std::filesystem::path(options.launcher.front()).filename();
  if (launcher == "mpirun" || launcher == "mpiexec") {
    options.hosts = mpi_hosts(options.launcher);
    if (!options.hosts.empty()) return;
  }
  if (launcher == "srun" && !std::getenv("SLURM_JOB_ID"))
    write_message(
        "srun makes a job of its own here, and its machines are not known, so that ranks there are not seen: run this "
        "within salloc or sbatch, or run lockstep within srun");
  const auto place = slurm_place();
  if (!place) return;
  options.is_judged_elsewhere = place->task > 0;
  if (options.is_judged_elsewhere) return;
  try {
    options.hosts = slurm_hosts(place->job);
    options.asks_own_relay = place->has_others_here;
  } catch (const StartError& error) {  // the job is the user's, and goes on
    write_message(fmt::format("ranks on other machines are not seen: {}", error.what()));
  }
}

/// Runs a Python job: `lockstep run [--hang-timeout S] [--findings FILE] [--tail N] -- torchrun … train.py`.
int run_job(const CLI::App& app, const RunOptions& options, const OfJobs& of_jobs) {
  for (const CLI::Option* option : app.get_options())
    if (const std::string name = option->get_name();
        option->count() > 0 && name != "--hang-timeout" && name != "--findings" && name != "--tail" &&
        name != "--record" && name != "--recording" && name != "--hosts" && name != "--remote-program")
      throw UsageError(
          name +
          " is for session scripts; with -- LAUNCHER… there are --hang-timeout S, "
          "--findings FILE, --tail N, --record K, --recording FILE, --hosts LIST and --remote-program PATH");
  check_recording(options.session.record);
  const auto serve_prompt = [](const std::string& job, int64_t first_cell) {
    SessionOptions session;
    session.job = job;
    session.ends_at_continue = true;
    return run_job_prompt(session, first_cell);
  };
  JobOptions job{.launcher = launcher_arguments(),
                 .hang_timeout_s = options.session.hang_timeout_s,
                 .findings = of_jobs.findings,
                 .record = options.session.record,
                 .tail = of_jobs.tail,
                 .serve_prompt = serve_prompt};
  choose_hosts_of_job(options.session, job);
  return JobRun(std::move(job)).run();
}

std::function<int()> set_up_run(CLI::App& app) {
  auto options = std::make_shared<RunOptions>();
  options->session.abort_hangs = true;
  const auto of_jobs = std::make_shared<OfJobs>();
  CLI::Option* const files = app.add_option(
      "file", options->files,
      "Session scripts (.cpp or .py in percent format, .ipynb); - is the standard input. Or one file of lockstep "
      "build. Or -- and a launcher: -- torchrun --nproc_per_node=4 train.py starts a Python job and "
      "watches it");
  app.add_option("--journal", options->journal,
                 "Run the cells of a session's journal again, with its options where none are given: its id, the "
                 "beginning of it, or last")
      ->type_name("ID")
      ->excludes(files);
  app.add_option("--findings", of_jobs->findings, "Of a Python job: add findings to this file as JSON lines")
      ->type_name("FILE");
  app.add_option("--tail", of_jobs->tail,
                 "Of a Python job that torchrun starts: show the last N lines of each rank's output after a failure")
      ->type_name("N")
      ->check(CLI::Range(1, 10000));
  add_session_options(app, options->session);
  add_script_options(app, *options);
  app.footer(
      "Exit codes: 0 every cell succeeded and there is no fault; 1 a cell failed or an inspector found a fault; 2 bad "
      "usage or unreadable\n"
      "file; 3 the session could not start; 4 a hang or a time-out; 5 a rank died; 130 interrupted. The first that "
      "happened decides.");
  return [options, of_jobs, &app] {
    if (!launcher_arguments().empty()) return run_job(app, *options, *of_jobs);
    if (options->files.empty() && options->journal.empty())
      throw UsageError("file is required: session scripts, --journal ID, or -- and a launcher");
    if (of_jobs->tail > 0) throw UsageError("--tail is for Python jobs: lockstep run --tail N -- torchrun … train.py");
    if (!of_jobs->findings.empty())
      throw UsageError("--findings is for Python jobs; sessions write them with --json FILE");
    check_script_options(*options);
    std::vector<Script> scripts = options->journal.empty() ? read_files(*options) : read_cells_again(*options);
    choose_hosts(options->session);
    return ScriptRun(*options, std::move(scripts)).run();
  };
}

const RegisterCommand kRun({"run", "Run session scripts", set_up_run});

}  // namespace
}  // namespace lockstep::shell
