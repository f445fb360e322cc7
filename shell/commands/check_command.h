// `lockstep check FILE...` compiles every cell of session scripts, in order, without running any and without workers.
#pragma once
#include <string>
#include <vector>

#include "shell/processes/object_source.h"

namespace lockstep::shell {

struct CheckOptions {
  std::vector<std::string> files;
  int ranks = 2;                           // as if the session had that many; %dist_init in a script says otherwise
  double compile_timeout_s = 60;
  int64_t compile_memory_mb = kCompileMemoryMb;
  std::vector<std::string> include_dirs;
};

/// Returns 0: all cells compile; 1: some don't (or have magics that don't exist), or what was found could not be
/// written; 130: interrupted. What a cell tagged raises-exception does is its own matter. Each file is a session of its
/// own. Throws UsageError for files that can't be read, StartError where the compiler can't work.
int check_command(const CheckOptions& options);

}  // namespace lockstep::shell
