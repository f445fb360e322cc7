#include "shell/commands/command.h"

namespace lockstep::shell {

std::vector<Command>& commands() {
  static std::vector<Command> table;
  return table;
}

}  // namespace lockstep::shell
