#include "compiler/description.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "compiler/front_end/front_end.h"
#include "compiler/process/shared_folder.h"
#include "compiler/state/header_cache.h"
#include "protocol/version.h"

namespace lockstep::compiler {

std::string describe_program(const Options& options) {
  nlohmann::json description = {{"program", "lockstep-compiler"},
                                {"lockstep", kVersion},
                                {"protocol", kProtocolVersion},
                                {"compiler", compiler_version()},
                                {"libtorch", options.libtorch_version}};
  std::string problem = installation_problem(options);
  if (problem.empty()) problem = standard_headers_problem(options);
  if (!problem.empty()) {
    description["problem"] = problem;
  } else {
    const std::string folder = header_folder(options);
    description["header"] = folder;
    // Programs that read cells as this one does, with a clang of their own, use the flags.
    description["flags"] = nlohmann::json::array();
    const auto flags = compile_flags(options);
    for (size_t i = 0; i < flags.size(); ++i) {
      if (flags[i] == "-Xclang")
        ++i;  // what only holds for cells that come one by one
      else if (!flags[i].starts_with("-resource-dir"))
        description["flags"].push_back(flags[i]);
    }
    description["cell_headers"] = {options.include_root + "/worker/cell/cell.h",
                                   options.include_root + "/worker/cell/warm_prelude.h"};
    description["header_state"] = is_complete(folder)               ? "ready"
                                  : std::filesystem::exists(folder) ? "damaged"
                                                                    : "missing";
  }
  return description.dump();
}

}  // namespace lockstep::compiler
