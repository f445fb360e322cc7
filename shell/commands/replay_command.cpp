// `lockstep replay FILE --rank R -- python train.py` runs one rank of a recorded job again, without the others; without a
// program, one of a recorded session.
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "collectives/record/rank_files.h"
#include "collectives/record/recording.h"
#include "protocol/dist_error.h"
#include "protocol/error.h"
#include "protocol/rank_set.h"
#include "shell/commands/command.h"
#include "shell/commands/script_run.h"
#include "shell/jobs/job_signals.h"
#include "shell/jobs/package_environment.h"
#include "shell/processes/launcher.h"
#include "shell/scripts/script.h"
#include "shell/session/session_journal.h"
#include "shell/terminal/terminal.h"
#include "shell/text/text_output.h"

namespace lockstep::shell {
namespace {

using nlohmann::json;

struct ReplayCommand {
  std::string path;
  int rank = 0;
  std::optional<int64_t> until;
  bool pdb = false, gdb = false, prompts = false;
};

/// pdb, or the prompt, opens at the beginning of a step that runs, and steps that were not recorded are left out.
void check_until(const ReplayCommand& command, const std::vector<dist::Record>& records) {
  if ((!command.pdb && !command.prompts) || !command.until) return;
  RankSet steps;  // folds the numbers
  for (const dist::Record& each : records) {
    if (each.kind != dist::RecordKind::step) continue;
    const int64_t step = each.text.at("step");
    if (step == *command.until) return;
    steps.insert(static_cast<int>(step));
  }
  throw UsageError(fmt::format("--until {} {}: this step of rank {} was not recorded; these were: {}", *command.until,
                               command.pdb ? "--pdb" : "-i", command.rank, steps.str()));
}

/// Holds what a recording says of a rank, and of the session that it was in; null: of a job.
struct Recorded {
  json about, session;
  std::set<int64_t> idle_cells;  // of the session, in which the rank has made no call
};

/// Returns the numbers of cells all of whose parts have ended without a call.
std::set<int64_t> idle_cells(const std::vector<dist::Record>& records) {
  std::map<int64_t, bool> idle;
  int64_t number = 0, first_call = 0;
  for (const dist::Record& each : records) {
    if (each.kind != dist::RecordKind::cell) continue;
    if (each.text.contains("cell")) {
      number = each.text["cell"];
      first_call = each.text.at("call");
      idle.emplace(number, true);
    } else if (each.text.at("call") != first_call) {
      idle[number] = false;
    }
  }
  std::set<int64_t> numbers;
  for (const auto& [cell, is_idle] : idle)
    if (is_idle) numbers.insert(cell);
  return numbers;
}

/// Throws UsageError where the recording can't be used for the rank.
Recorded read_recording(const ReplayCommand& command) {
  try {
    const dist::Recording recording(command.path);
    for (const int rank : recording.ranks()) recording.check(rank);  // each has shares of what the others received
    check_until(command, recording.records(command.rank));
    for (const dist::Record& each : recording.records(command.rank))
      if (each.kind == dist::RecordKind::stopped)
        write_message("recording had ended before the program did: " + each.text.value("reason", ""));
    return {.about = recording.about(command.rank),
            .session = recording.session(),
            .idle_cells = idle_cells(recording.records(command.rank))};
  } catch (const dist::Error& error) {
    throw UsageError(error.what());
  } catch (const json::exception& error) {
    throw UsageError(fmt::format("{} has a record that this program can't read: {}", command.path, error.what()));
  }
}

int number_in(const json& about, const char* key, int otherwise) {
  const json& value = about.value(key, json());
  return value.is_number_integer() ? value.get<int>() : otherwise;
}

/// The variables of torchrun for this rank. Those that are set already stay, but for who the rank is.
std::map<std::string, std::string> environment_of(const ReplayCommand& command, const json& about) {
  const auto number = [&](const char* key, int otherwise) { return std::to_string(number_in(about, key, otherwise)); };
  std::map<std::string, std::string> environment = {
      {"LOCKSTEP_REPLAY", std::filesystem::absolute(command.path).string()},
      {"LOCKSTEP_REPLAY_RANK", std::to_string(command.rank)},
      {"RANK", std::to_string(command.rank)},
      {"WORLD_SIZE", number("world_size", 1)},
      {"LOCAL_RANK", number("local_rank", 0)},
      {"LOCAL_WORLD_SIZE", number("local_world_size", 1)}};
  for (const auto& [name, value] : std::map<std::string, std::string>{
           {"OMP_NUM_THREADS", number("threads", 1)}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "29500"}})
    if (!std::getenv(name.c_str())) environment[name] = value;
  if (command.until) environment["LOCKSTEP_REPLAY_UNTIL"] = std::to_string(*command.until);
  if (command.pdb) environment["LOCKSTEP_REPLAY_PDB"] = "1";
  add_package(environment);
  return environment;
}

/// Returns the cells that the rank has run, in order. One that was interrupted ends again where its rank comes to a call
/// that it had not made; without calls it would run for ever.
std::vector<ScriptCell> cells_of(const Recorded& recorded, int rank) {
  std::vector<ScriptCell> cells;
  for (const json& each : recorded.session.at("cells")) {
    const auto ranks = each.at("ranks").get<std::vector<int>>();
    if (!ranks.empty() && !RankSet(ranks).contains(rank)) continue;
    ScriptCell cell{.title = each.at("title"), .text = each.at("text"), .number = each.at("number")};
    const std::string status = each.at("status");
    if (status == to_string(CellStatus::interrupted) && recorded.idle_cells.contains(cell.number)) {
      write_message(fmt::format("left out: cell {}, which was interrupted", cell.number));
      continue;
    }
    if (status != to_string(CellStatus::ok))
      cell.tags.push_back({std::string(kFailedBefore), status});
    else if (each.at("faults") > 0)
      cell.tags.push_back({std::string(kFailedBefore), "a fault"});
    cells.push_back(std::move(cell));
  }
  return cells;
}

/// Runs one rank of a session again: its cells, without the others' part of them.
int replay_session(const ReplayCommand& command, const Recorded& recorded) {
  RunOptions options;
  std::vector<ScriptCell> cells;
  try {
    set_options_as(recorded.session.at("description"), 1, options.session);
    cells = cells_of(recorded, command.rank);
  } catch (const json::exception& error) {
    throw UsageError(fmt::format("{} has cells that this program can't read: {}", command.path, error.what()));
  }
  constexpr int kMostRanks = 1 << 16;
  const int world_size = number_in(recorded.about, "world_size", command.rank + 1);
  if (command.rank >= world_size || world_size > kMostRanks)
    throw UsageError(fmt::format("{} says that rank {} is one of {}", command.path, command.rank, world_size));
  options.session.replay = ReplayedRank{.path = std::filesystem::absolute(command.path).string(),
                                        .rank = command.rank,
                                        .world_size = world_size,
                                        .local_rank = number_in(recorded.about, "local_rank", command.rank),
                                        .local_world_size = number_in(recorded.about, "local_world_size", world_size),
                                        .threads = number_in(recorded.about, "threads", 1),
                                        .until = command.until};
  options.session.num_processes = 1;
  options.session.gpu_ids.clear();
  options.session.backend = "gloo";
  options.session.keeps_journal = false;
  options.show_code = true;
  if (command.prompts) return run_terminal(options.session, /*start_now=*/true, {}, cells);
  return ScriptRun(std::move(options), {{.name = command.path, .cells = std::move(cells)}}).run();
}

int replay(const ReplayCommand& command) {
  std::vector<std::string> program = launcher_arguments();
  const Recorded recorded = read_recording(command);
  if (!recorded.session.is_null()) {
    if (!program.empty())
      throw UsageError(command.path + " is of a session, and has its cells: leave out what stands behind --");
    if (command.pdb || command.gdb)
      throw UsageError(
          "--pdb and --gdb are for recorded jobs. -i opens a prompt when the cells have run; %dist_status has "
          "the process for gdb -p (docs/gdb.md)");
    return replay_session(command, recorded);
  }
  if (program.empty()) throw UsageError("the program is missing: lockstep replay FILE --rank R -- python train.py");
  if (command.pdb && command.gdb) throw UsageError("--pdb and --gdb: give one of them");
  if (command.prompts) throw UsageError("-i is for recorded sessions; --pdb opens pdb in a program");
  Launch launch;
  launch.environment = environment_of(command, recorded.about);
  if (command.gdb) program.insert(program.begin(), {"gdb", "-q", "-ex", "run", "--args"});
  launch.program = program.front();
  launch.arguments.assign(program.begin() + 1, program.end());
  launch.as_in_shell = true;
  launch.default_signals = {SIGPIPE};
  // Ctrl-C is the program's, which pdb and gdb stop at; other signals go on to it.
  std::optional<Child> child;
  JobSignals signals;
  child.emplace(launch);
  signals.pass_on_to(child->pidfd());
  return child->wait().exit_code();
}

std::function<int()> set_up_replay(CLI::App& app) {
  auto command = std::make_shared<ReplayCommand>();
  app.add_option("file", command->path, "What lockstep run --record K has written")->required();
  app.add_option("--rank", command->rank, "The rank that runs again")->required()->type_name("R");
  app.add_option("--until", command->until, "End before this step; with --pdb stop there")
      ->type_name("STEP")
      ->check(CLI::NonNegativeNumber);
  app.add_flag("--pdb", command->pdb, "Open pdb at an exception that nothing catches, and at --until");
  app.add_flag("--gdb", command->gdb, "Run it under gdb");
  app.add_flag("-i,--interactive", command->prompts, "Of a session: open a prompt when its cells have run");
  app.footer(
      "After -- stands how the script of a job is run without a launcher: -- python train.py ARGUMENT…\n"
      "Exit codes: that of the program; 2 bad usage, or a recording that can't be used; 3 the program can't be "
      "started.");
  return [command] { return replay(*command); };
}

const RegisterCommand kReplay({"replay", "Run one rank of a recorded job or session again, alone", set_up_replay});

}  // namespace
}  // namespace lockstep::shell
