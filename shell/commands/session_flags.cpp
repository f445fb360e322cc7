#include "shell/commands/session_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <memory>

#include "collectives/record/rank_files.h"
#include "protocol/error.h"
#include "shell/processes/session_plan.h"
#include "shell/text/suggest.h"

namespace lockstep::shell {
namespace {

void add_argument(SessionOptions& options, const std::string& text) {
  const auto equals = text.find('=');
  if (equals == std::string::npos || equals == 0)
    throw UsageError("--arg " + text + ": write --arg NAME=VALUE; cells read it with arg(\"NAME\")");
  options.arguments[text.substr(0, equals)] = text.substr(equals + 1);
}

constexpr double kLongest_s = 365 * 86400;  // times far beyond do not fit the clock

/// Checks an option that takes seconds; 0 is a time, too, where `zero` has a meaning.
CLI::Validator seconds(bool zero) {
  return {[zero](const std::string& text) -> std::string {
            double value = 0;
            const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
            if (error == std::errc() && end == text.data() + text.size() && std::isfinite(value) &&
                (zero ? value >= 0 : value > 0) && value <= kLongest_s)
              return "";
            return "'" + text + "' is no time: give seconds" + (zero ? ", or 0 for none" : ", more than 0") +
                   fmt::format("; at most {:.0f}, a year", kLongest_s);
          },
          ""};
}

}  // namespace

void add_journal_options(CLI::App& app, SessionOptions& options) {
  app.add_flag_callback(
      "--no-journal", [&options] { options.keeps_journal = false; },
      "Keep no journal of the session (lockstep sessions show ID)");
  app.add_option("--journal-size", options.journal_mb,
                 "Megabytes of output that the journal of the session keeps, and of cells; the oldest go (64)")
      ->type_name("MB")
      ->check(CLI::Range(1, 1 << 20));
}

void add_session_options(CLI::App& app, SessionOptions& options) {
  app.add_option("-n,--num-processes", options.num_processes,
                 "How many ranks; default: one per visible GPU, two on the CPU where there is none")
      ->type_name("N");
  app.add_option_function<std::string>(
         "--gpu-ids", [&options](const std::string& list) { options.gpu_ids = parse_gpu_ids(list); },
         "GPUs of the ranks, in order, counted among the visible ones: 0,1")
      ->type_name("LIST");
  app.add_flag(
      "--share-gpu", options.share_gpu,
      "Let several ranks share a GPU; their collectives go over Gloo, with copies on the host, unless --backend "
      "says nccl");
  app.add_flag("--all-gpus-visible", options.all_gpus_visible,
               "Let each rank see every GPU, as torchrun does; default: its own only, as device cuda:0");
  app.add_option_function<std::string>(
         "--backend",
         [&options](const std::string& name) {
           check_backend(name);
           options.backend = name;
         },
         "Transport of collectives: auto (the default: nccl for tensors on GPUs, shared_memory for 2 to 64 ranks "
         "on the CPU of one machine, gloo for others), gloo, shared_memory, nccl or cpu:gloo,cuda:nccl")
      ->type_name("NAME");
  app.add_option(
         "--hosts", options.hosts,
         "Machines on which the ranks run, through ssh: node1,node2. Within a job of Slurm its nodes are taken by "
         "themselves; none: this machine alone")
      ->type_name("LIST");
  app.add_option("--ticket", options.ticket,
                 "Make this file, and wait for the ranks: a launcher starts `lockstep relay --ticket FILE` for each")
      ->type_name("FILE");
  app.add_option("--launch", options.launch,
                 "The command of a launcher that starts a process for each rank: \"mpirun -n 4 -H node1:2,node2:2\"")
      ->type_name("COMMAND");
  app.add_flag_callback(
      "--ray", [&options] { options.launch = kRay; },
      "Ranks on the nodes of the Ray cluster that `ray status` shows here");
  app.add_option("--remote-program", options.remote_program,
                 "With other machines: the path of lockstep there (default: that of this one)")
      ->type_name("PATH");
  app.add_option("--start-timeout", options.start_timeout_s,
                 "With other machines: seconds in which they have to answer (30), or with --ticket, --launch and --ray "
                 "their ranks to come (600)")
      ->type_name("S")
      ->check(seconds(/*zero=*/false));
  // A flag whose value needs a '=': a file or a command may follow.
  const auto python = std::make_shared<std::string>();
  app.add_flag(
         "--python", *python,
         "Ranks in Python, as their cells are (but for %%cpp): of the python3 in PATH, or with --python=PATH of that "
         "interpreter")
      ->each([&options, python](const std::string& value) { options.python = value == "true" ? "" : value; });
  app.add_option("--cell-timeout", options.cell_timeout_s, "Seconds after which a cell is stopped; 0: never")
      ->type_name("S")
      ->check(seconds(/*zero=*/true));
  app.add_option("--hang-timeout", options.hang_timeout_s,
                 "Seconds without progress that count as a hang; 0: only hangs that are proven")
      ->type_name("S")
      ->check(seconds(/*zero=*/true));
  app.add_option("--compile-timeout", options.compile_timeout_s,
                 "Seconds after which compiling a cell is given up (60)")
      ->type_name("S")
      ->check(seconds(/*zero=*/false));
  app.add_option("--compile-memory", options.compile_memory_mb,
                 "Megabytes of memory that compiling a cell may take; 0: no limit (3072)")
      ->type_name("MB")
      ->check(CLI::NonNegativeNumber);
  app.add_option_function<std::string>(
         "--check-collectives",
         [&options](const std::string& word) {
           if (word != "on" && word != "off") throw UsageError("--check-collectives " + word + ": say on or off");
           options.check_collectives = word == "on";
         },
         "Compare collectives across ranks before data moves: on (the default) or off")
      ->type_name("on|off");
  app.add_flag("--debug-cells", options.debug_cells, "Compile all cells with full debug information, for gdb");
  CLI::Option* const record =
      app.add_option(
             "--record", options.record.steps,
             "Each rank keeps what its last K steps have received, for lockstep replay; it becomes a file where a "
             "cell, or the job, fails")
          ->type_name("K")
          ->check(CLI::Range(1, dist::kMostRecordedSteps));
  app.add_option("--recording", options.record.path, "The file of --record, which is written also without a failure")
      ->type_name("FILE")
      ->needs(record);
  add_journal_options(app, options);
  app.add_option("-I,--include-dir", options.include_dirs, "Folder of headers that cells include; may be repeated")
      ->allow_extra_args(false)
      ->type_name("DIR");
  app.add_option_function<std::vector<std::string>>(
         "--arg",
         [&options](const std::vector<std::string>& all) {
           for (const auto& text : all) add_argument(options, text);
         },
         "What cells read with arg(\"NAME\"); may be repeated")
      ->allow_extra_args(false)
      ->type_name("NAME=VALUE");
}

void check_resume_alone(const CLI::App& app, std::initializer_list<std::string_view> allowed) {
  for (const CLI::Option* each : app.parse_order())
    if (const std::string name = each->get_name(); name != "--resume" && std::ranges::count(allowed, name) == 0)
      throw UsageError(name + " can't be used with --resume: the session is there already, as it was started");
}

bool asks_for_ranks(const SessionOptions& options) {
  return options.num_processes || !options.gpu_ids.empty() || options.share_gpu || options.all_gpus_visible ||
         options.backend != "auto" || !options.is_here() || options.record.steps > 0;
}

}  // namespace lockstep::shell
