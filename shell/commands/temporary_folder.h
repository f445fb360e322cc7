// A folder for files of one command.
#pragma once
#include <string>

namespace lockstep::shell {

/// A folder that is removed with its content at the end of its owner, also if it is not empty.
class TemporaryFolder {
 public:
  /// Makes lockstep-NAME-XXXXXX in the folder for temporary files. Throws StartError.
  explicit TemporaryFolder(const std::string& name);
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace lockstep::shell
