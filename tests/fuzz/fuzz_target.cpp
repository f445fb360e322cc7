#include "tests/fuzz/fuzz_target.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace lockstep::fuzz {
namespace {

namespace fs = std::filesystem;

class Folder {
 public:
  Folder() {
    path_ = fs::temp_directory_path() / "lockstep-fuzz-XXXXXX";
    check(::mkdtemp(path_.data()) != nullptr, "there is a folder for temporary files");
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace

std::map<std::string, Target, std::less<>>& targets() {
  static std::map<std::string, Target, std::less<>> all;
  return all;
}

const std::string& folder() {
  static const Folder own;
  return own.path();
}

std::string written(const std::string& name, std::string_view bytes) {
  const fs::path path = fs::path(folder()) / name;
  std::error_code ignored;
  fs::create_directories(path.parent_path(), ignored);
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << bytes;
  file.close();
  check(file.good(), "files can be written");
  return path;
}

void check(bool holds, const char* promise) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", promise);
  std::abort();
}

}  // namespace lockstep::fuzz
