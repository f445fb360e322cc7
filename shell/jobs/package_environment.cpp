#include "shell/jobs/package_environment.h"

#include <cstdlib>
#include <filesystem>

#include "protocol/installation.h"

namespace lockstep::shell {

namespace fs = std::filesystem;

void add_package(std::map<std::string, std::string>& environment) {
  const fs::path folder = protocol::programs_prefix() / "python";
  std::error_code error;
  if (!fs::exists(folder / "autoload", error)) return;
  const char* before = std::getenv("PYTHONPATH");
  environment["PYTHONPATH"] =
      (before && *before ? std::string(before) + ":" : std::string()) + (folder / "autoload").string();
  environment["LOCKSTEP_PACKAGE"] = folder.string();
}

}  // namespace lockstep::shell
