#include "protocol/installation.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <utility>
#include <vector>

#include "protocol/environment.h"
#include "protocol/files.h"
#include "protocol/user_folders.h"

namespace lockstep::protocol {

namespace fs = std::filesystem;

namespace {

constexpr const char* kVersionFile = "lib/lockstep/libtorch.version";
constexpr const char* kFolderFile = "lib/lockstep/libtorch.folder";
constexpr const char* kDigestFile = "lib/lockstep/headers.digest";
constexpr const char* kHome = "lib/lockstep/home";
constexpr const char* kSetup = "bin/lockstep-setup";
constexpr const char* kVersionOfWheel = "lib/lockstep.version";
constexpr const char* kForTorch = "torch";  // and a minor version: what a wheel has for it
// An installation with the one lacks the other only when it is damaged.
constexpr const char* kHeaders = "include/lockstep";
constexpr const char* kCompiler = "bin/lockstep-compiler";

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

bool has_library(const fs::path& folder) { return is_there(folder / "lib/libtorch_cpu.so"); }

/// Returns what LOCKSTEP_LIBTORCH names, which has to be the `version` that the programs were built with.
LibTorch named_libtorch(const fs::path& folder, const std::string& version) {
  LibTorch result{.folder = folder, .version = version, .problem = {}, .fix = {}};
  const std::string found = version_of_libtorch(folder);
  if (found.empty() || (found == version && !has_library(folder))) {
    result.problem = "no LibTorch at " + folder.string();
    result.fix = "point LOCKSTEP_LIBTORCH at the folder that holds the include/ and lib/ of LibTorch " + version +
                 ", or unset it and run " + setup_command();
  } else if (found != version) {
    result.problem = "LOCKSTEP_LIBTORCH names LibTorch " + found + " (" + folder.string() +
                     "), and this Lockstep was built against " + version;
    result.fix = is_installed() ? "unset LOCKSTEP_LIBTORCH and run " + setup_command()
                                : "unset LOCKSTEP_LIBTORCH, or build Lockstep against that LibTorch (tools/test "
                                  "--libtorch " +
                                      found + ")";
  }
  return result;
}

/// Returns the minor versions of torch that the wheel has something for: "2.9", "2.11".
std::vector<std::string> minors_of_wheel() {
  std::vector<std::pair<int, std::string>> found;
  std::error_code error;
  for (fs::directory_iterator each(programs_prefix(), error), end; !error && each != end; each.increment(error)) {
    const std::string name = each->path().filename();
    int major = 0, minor = 0;
    if (std::sscanf(name.c_str(), "torch%d.%d", &major, &minor) == 2)
      found.emplace_back(major * 1000 + minor, name.substr(std::strlen(kForTorch)));
  }
  std::sort(found.begin(), found.end());
  std::vector<std::string> minors;
  for (auto& [number, name] : found) minors.push_back(std::move(name));
  return minors;
}

/// Returns "torch>=2.11,<2.16", as the wheel's metadata has it (python/lockstep_metadata.py).
std::string requirement_of_wheel() {
  const auto minors = minors_of_wheel();
  if (minors.empty()) return "torch";
  int major = 0, minor = 0;
  std::sscanf(minors.back().c_str(), "%d.%d", &major, &minor);
  return "torch>=" + minors.front() + ",<" + std::to_string(major) + "." + std::to_string(minor + 1);
}

LibTorch libtorch_of_wheel() {
  const std::string named = variable("LOCKSTEP_LIBTORCH");
  const fs::path folder = named.empty() ? programs_prefix().parent_path() / "torch" : fs::path(named);
  LibTorch result{.folder = folder, .version = version_of_libtorch(folder), .problem = {}, .fix = {}};
  if (result.version.empty() || !has_library(folder)) {
    result.problem = "there is no torch in " + folder.string();
    if (named.empty()) result.folder.clear();
  } else if (!is_there(programs_prefix() / (kForTorch + minor_of(result.version)))) {
    result.problem = "torch " + result.version + " in " + folder.string() +
                     " is of a minor version that this Lockstep was not built for";
  } else {
    return result;
  }
  result.version.clear();
  result.fix = (named.empty() ? "" : "unset LOCKSTEP_LIBTORCH, which names it, or ") + setup_command();
  return result;
}

}  // namespace

std::string version_of_libtorch(const fs::path& folder) {
  std::ifstream file(folder / "include/torch/headeronly/version.h");
  std::string version;
  for (std::string line; std::getline(file, line);)
    for (const char* part : {"MAJOR", "MINOR", "PATCH"}) {
      const std::string define = std::string("#define TORCH_VERSION_") + part + " ";
      if (line.starts_with(define)) version += (version.empty() ? "" : ".") + line.substr(define.size());
    }
  return version;
}

std::string minor_of(const std::string& version) { return version.substr(0, version.find('.', version.find('.') + 1)); }

fs::path programs_prefix() {
  std::error_code error;
  if (const std::string named = variable("LOCKSTEP_BIN"); !named.empty()) {
    const fs::path prefix = fs::weakly_canonical(fs::path(named) / "..", error);
    if (!error && (is_there(prefix / kVersionFile) || is_there(prefix / kVersionOfWheel))) return prefix;
  }
  return fs::read_symlink("/proc/self/exe", error).parent_path().parent_path();
}

fs::path torch_prefix() {
  if (!is_wheel()) return programs_prefix();
  const std::string version = libtorch_version();
  return version.empty() ? fs::path() : programs_prefix() / (kForTorch + minor_of(version));
}

bool is_wheel() { return is_there(programs_prefix() / kVersionOfWheel); }

bool is_installed() { return is_wheel() || is_there(programs_prefix() / kSetup); }

bool is_run_only() {
  // A wheel has headers for cells of jobs, which the compiler of another installation compiles.
  return is_installed() && (is_wheel() || !is_there(programs_prefix() / kHeaders)) &&
         !is_there(programs_prefix() / kCompiler);
}

std::string setup_command() {
  if (is_wheel()) return "pip install '" + requirement_of_wheel() + "'";
  return is_installed() ? (programs_prefix() / kSetup).string() : "tools/setup";
}

std::string libtorch_version() {
  return is_wheel() ? libtorch_of_wheel().version : first_line_of(programs_prefix() / kVersionFile);
}

std::string header_digest() { return first_line_of(programs_prefix() / kDigestFile); }

fs::path shared_home() {
  const fs::path named = variable("LOCKSTEP_HOME");
  return named.is_absolute() ? named : programs_prefix() / kHome;
}

LibTorch find_libtorch() {
  if (is_wheel()) return libtorch_of_wheel();
  const fs::path prefix = programs_prefix();
  const std::string version = libtorch_version();
  if (version.empty())
    return {.folder = {},
            .version = {},
            .problem = (prefix / kVersionFile).string() + " is missing, which names the version of LibTorch to use",
            .fix = "build or install Lockstep again"};
  if (const std::string named = variable("LOCKSTEP_LIBTORCH"); !named.empty()) return named_libtorch(named, version);

  std::vector<fs::path> places;
  if (const std::string built_with = first_line_of(prefix / kFolderFile); !built_with.empty())
    places.push_back((prefix / built_with).lexically_normal());
  for (const std::string& name : {version + "-gpu", version}) {
    const fs::path shared = shared_home() / "libtorch" / name / "torch";
    if (is_there(shared) || !variable("LOCKSTEP_HOME").empty()) places.push_back(shared);
  }
  if (const fs::path cache = user_folder("XDG_CACHE_HOME", ".cache"); !cache.empty())
    for (const std::string& name : {version + "-gpu", version})
      places.push_back(cache / "lockstep" / "libtorch" / name / "torch");
  LibTorch result{.folder = {}, .version = {}, .problem = "there is no LibTorch " + version, .fix = {}};
  for (size_t i = 0; i < places.size(); ++i) {
    if (version_of_libtorch(places[i]) == version && has_library(places[i]))
      return {.folder = places[i], .version = version, .problem = {}, .fix = {}};
    result.problem += (i == 0 ? " in " : i + 1 == places.size() ? " or " : ", ") + places[i].string();
  }
  result.fix = "run " + setup_command() + ", or point LOCKSTEP_LIBTORCH at the folder that holds its include/ and lib/";
  return result;
}

}  // namespace lockstep::protocol
