// The subcommands of `lockstep`. Each registers itself from its own file; main.cpp only asks the table.
#pragma once
#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

namespace lockstep::shell {

struct Command {
  std::string name;  // "run"; empty: what `lockstep` without a subcommand does
  std::string summary;
  /// Adds options to `app` and returns what runs the command: its result is the exit code. UsageError thrown there
  /// exits with 2, StartError with 3, anything else with 1; main prints the message.
  std::function<std::function<int()>(CLI::App& app)> set_up;
};

/// Returns what follows `--` on the command line of `lockstep run` or `lockstep replay`: the launcher of a Python job, or
/// a program, and its arguments. Set before set_up is called.
std::vector<std::string>& launcher_arguments();

/// Returns all commands, by name.
std::vector<Command>& commands();

/// Is used as `static const RegisterCommand kDoctor({...});` at file scope.
struct RegisterCommand {
  explicit RegisterCommand(Command command) { commands().push_back(std::move(command)); }
};

}  // namespace lockstep::shell
