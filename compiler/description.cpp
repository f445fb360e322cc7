#include "compiler/description.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "compiler/process/shared_folder.h"
#include "compiler/state/header_cache.h"
#include "protocol/version.h"

namespace lockstep::compiler {

std::string describe_program(const Options& options) {
  nlohmann::json description = {{"program", "lockstep-compiler"},
                                {"lockstep", kVersion},
                                {"protocol", kProtocolVersion},
                                {"compiler", compiler_version()},
                                {"libtorch_built_with", LOCKSTEP_LIBTORCH_VERSION}};
  if (const std::string problem = installation_problem(options); !problem.empty()) {
    description["problem"] = problem;
  } else {
    const std::string folder = header_folder(options);
    description["header"] = folder;
    description["header_state"] = is_complete(folder)               ? "ready"
                                  : std::filesystem::exists(folder) ? "damaged"
                                                                    : "missing";
  }
  return description.dump();
}

}  // namespace lockstep::compiler
