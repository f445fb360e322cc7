// Files of saved replicas that tests write and read.
#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "inspectors/pickle/reading_limit.h"
#include "inspectors/verify/verify.h"
#include "protocol/dist_error.h"

namespace lockstep::inspect {

/// A folder that is removed with this object. Test programs that run at the same time have different ones.
class SavedFolder {
 public:
  SavedFolder() : path_(::testing::TempDir() + "saved-replicas-" + std::to_string(::getpid())) {
    std::filesystem::create_directories(path_);
  }
  SavedFolder(const SavedFolder&) = delete;
  SavedFolder& operator=(const SavedFolder&) = delete;
  ~SavedFolder() { std::filesystem::remove_all(path_); }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  const std::string path_;
};

inline std::string file_bytes(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

/// Writes a file. Returns its path.
inline std::string written(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

/// Why a file is not read as a replica; "none" where it is.
inline std::string load_error(const std::string& path, ReadingLimit limit = ReadingLimit()) {
  try {
    saved_replica(path, limit);
  } catch (const dist::ArgumentError& error) {
    return error.what();
  }
  return "none";
}

}  // namespace lockstep::inspect
