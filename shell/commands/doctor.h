// Checks one by one what a session needs of this machine and this installation: `lockstep doctor`. Each check says what
// was found and, where something is wrong, how to fix it. Nothing is changed; no worker and no compiler is started,
// both are only asked for their versions.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "shell/processes/launcher.h"

namespace lockstep::shell {

enum class CheckState {
  ok,
  note,  // worth knowing; sessions start
  missing,  // no session can start
};

struct Check {
  std::string name;  // "libtorch"
  CheckState state = CheckState::ok;
  std::string found;  // for people, one line or more
  std::string fix;  // empty where nothing is wrong
  nlohmann::json data;  // the same as data: null or an object
};

/// Checks programs and libraries: worker, LibTorch, compiler, precompiled header, whether their versions fit together.
std::vector<Check> check_installation();

/// Checks GPUs: driver, each GPU, the plug-in and what it has code for, LibTorch with CUDA, NCCL. All results are notes
/// at most: sessions start without.
std::vector<Check> check_gpus();
/// Returns the compute capabilities that the plug-in `library` has code for: "8.0", …, "12.0+", where + is PTX, which
/// newer ones can use, too. They are read from the file: loading it would take LibTorch. Empty for a file that is none.
std::vector<std::string> plugin_architectures(const std::string& library);
/// Whether a GPU of compute capability "9.0" runs code for one of them.
bool has_code_for(const std::vector<std::string>& architectures, const std::string& capability);

/// Checks the machine: memory, limits on mappings (how many cells fit), descriptors and processes, shared memory,
/// folders and the space in them, the loopback interface, LOCKSTEP_* variables.
std::vector<Check> check_machine();

/// Returns the variables of the environment that a source of the tree names (cmake/KnownVariables.cmake lists them).
std::vector<std::string> known_variables();

/// Has what a program writes to its streams until it ends, and its exit code; -1 where it is not done in `limit_s`.
/// Throws StartError where it can't be started.
struct ProgramOutput {
  int exit_code = -1;
  std::string text;
};
ProgramOutput output_of(Launch launch, double limit_s);

}  // namespace lockstep::shell
