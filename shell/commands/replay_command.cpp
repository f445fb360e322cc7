// `lockstep replay FILE --rank R -- python train.py` runs one rank of a recorded job again, without the others.
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "collectives/record/rank_files.h"
#include "collectives/record/recording.h"
#include "protocol/dist_error.h"
#include "protocol/error.h"
#include "protocol/rank_set.h"
#include "shell/commands/command.h"
#include "shell/jobs/job_signals.h"
#include "shell/jobs/package_environment.h"
#include "shell/processes/launcher.h"
#include "shell/text/text_output.h"

namespace lockstep::shell {
namespace {

using nlohmann::json;

struct ReplayCommand {
  std::string path;
  int rank = 0;
  std::optional<int64_t> until;
  bool pdb = false, gdb = false;
};

/// pdb opens at the beginning of a step that runs, and steps that were not recorded are left out.
void check_until(const ReplayCommand& command, const std::vector<dist::Record>& records) {
  if (!command.pdb || !command.until) return;
  RankSet steps;  // folds the numbers
  for (const dist::Record& each : records) {
    if (each.kind != dist::RecordKind::step) continue;
    const int64_t step = each.text.at("step");
    if (step == *command.until) return;
    steps.insert(static_cast<int>(step));
  }
  throw UsageError(fmt::format("--until {} --pdb: this step of rank {} was not recorded; these were: {}",
                               *command.until, command.rank, steps.str()));
}

/// Returns what `about` says of a rank. Throws UsageError where the recording can't be used for it.
json read_about(const ReplayCommand& command) {
  try {
    const dist::Recording recording(command.path);
    recording.check(command.rank);
    check_until(command, recording.records(command.rank));
    for (const dist::Record& each : recording.records(command.rank))
      if (each.kind == dist::RecordKind::stopped)
        write_message("recording had ended before the program did: " + each.text.value("reason", ""));
    return recording.about(command.rank);
  } catch (const dist::Error& error) {
    throw UsageError(error.what());
  } catch (const json::exception& error) {
    throw UsageError(fmt::format("{} has a record that this program can't read: {}", command.path, error.what()));
  }
}

/// The variables of torchrun for this rank. Those that are set already stay, but for who the rank is.
std::map<std::string, std::string> environment_of(const ReplayCommand& command, const json& about) {
  const auto number = [&](const char* key, int otherwise) {
    const json& value = about.value(key, json());
    return std::to_string(value.is_number_integer() ? value.get<int>() : otherwise);
  };
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

int replay(const ReplayCommand& command) {
  std::vector<std::string> program = launcher_arguments();
  if (program.empty()) throw UsageError("the program is missing: lockstep replay FILE --rank R -- python train.py");
  if (command.pdb && command.gdb) throw UsageError("--pdb and --gdb: give one of them");
  const json about = read_about(command);
  Launch launch;
  launch.environment = environment_of(command, about);
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
  app.footer(
      "After -- stands how the script is run without a launcher: -- python train.py ARGUMENT…\n"
      "Exit codes: that of the program; 2 bad usage, or a recording that can't be used; 3 the program can't be "
      "started.");
  return [command] { return replay(*command); };
}

const RegisterCommand kReplay({"replay", "Run one rank of a recorded Python job again, alone", set_up_replay});

}  // namespace
}  // namespace lockstep::shell
