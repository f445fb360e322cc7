#include "shell/commands/temporary_folder.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "protocol/error.h"

namespace lockstep::shell {

TemporaryFolder::TemporaryFolder(const std::string& name)
    : path_((std::filesystem::temp_directory_path() / ("lockstep-" + name + "-XXXXXX")).string()) {
  if (!::mkdtemp(path_.data())) throw StartError(std::string("no temporary folder: ") + std::strerror(errno));
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code error;  // what can't be removed stays in the folder for temporary files
  std::filesystem::remove_all(path_, error);
}

}  // namespace lockstep::shell
