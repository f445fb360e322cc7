#include "shell/commands/command.h"

namespace lockstep::shell {

std::vector<Command>& commands() {
  static std::vector<Command> table;
  return table;
}

std::vector<std::string>& launcher_arguments() {
  static std::vector<std::string> arguments;
  return arguments;
}

}  // namespace lockstep::shell
