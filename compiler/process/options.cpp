#include "compiler/process/options.h"

#include <clang/Basic/Version.h>

#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <type_traits>

#include "protocol/error.h"
#include "protocol/installation.h"
#include "protocol/user_folders.h"
#include "protocol/whole_number.h"

namespace lockstep::compiler {

namespace fs = std::filesystem;

namespace {

/// Installed headers are in PREFIX/include/lockstep. A build tree uses the source tree.
std::string find_include_root() {
  std::error_code error;
  const fs::path installed = protocol::programs_prefix() / "include" / "lockstep";
  if (fs::exists(installed / "worker" / "cell" / "cell.h", error)) return installed;
  return LOCKSTEP_SOURCE_ROOT;
}

/// Clang's own headers come with a compiler that is linked with Clang statically; else they are those of its library.
std::string find_resource_dir() {
  std::error_code error;
  const fs::path own = protocol::programs_prefix() / "lib/clang/" CLANG_VERSION_MAJOR_STRING;
  return fs::exists(own, error) ? own.string() : LOCKSTEP_DEFAULT_RESOURCE_DIR;
}

/// Returns an empty path if the user has no folder for it.
std::string find_cache() {
  const fs::path folder = protocol::user_folder("XDG_CACHE_HOME", ".cache");
  return folder.empty() ? "" : folder / "lockstep";
}

}  // namespace

Options read_options(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    const auto value = [&]() -> std::string {
      if (i + 1 >= argc) throw UsageError(std::string(argument) + " needs a value");
      return argv[++i];
    };
    const auto number = [&](auto& into, const std::string& what) {
      const std::string text = value();
      const auto given = protocol::whole_number<std::remove_reference_t<decltype(into)>>(text, 0);
      if (!given) throw UsageError(std::string(argument) + " needs " + what + ", not '" + text + "'");
      into = *given;
    };
    if (argument == "--channel-fd") {
      number(options.channel_fd, "the number of an open descriptor");
    } else if (argument == "--memory-limit") {
      number(options.memory_limit_mb, "a number of megabytes");
    } else if (argument == "--session-dir") {
      options.session_dir = value();
    } else if (argument == "--version") {
      options.version = true;
    } else if (argument == "--prepare") {
      options.prepare = true;
    } else if (argument == "--cache-dir") {
      options.cache_dir = value();
    } else if (argument == "--python-job") {
      options.for_python_job = true;
      options.libtorch = value();
      options.libtorch_version = protocol::version_of_libtorch(options.libtorch);
      options.include_root = value();
    } else if (argument == "-I") {
      options.include_dirs.push_back(value());
    } else if (argument.starts_with("-I")) {
      options.include_dirs.emplace_back(argument.substr(2));
    } else {
      throw UsageError("lockstep-compiler does not know '" + std::string(argument) +
                       "'. It is started by lockstep: --channel-fd N --session-dir DIR [-I DIR]...");
    }
  }
  const bool for_session = !options.prepare && !options.version;
  if (for_session && options.channel_fd < 0)
    throw UsageError("lockstep-compiler is started by lockstep, which gives it --channel-fd and --session-dir");
  if (for_session && options.session_dir.empty()) throw UsageError("--session-dir is missing");
  if (!options.for_python_job) {
    const protocol::LibTorch libtorch = protocol::find_libtorch();
    options.libtorch = libtorch.folder;
    options.libtorch_version = libtorch.version;
    if (!libtorch.problem.empty()) options.libtorch_problem = libtorch.sentence();
    options.include_root = find_include_root();
  }
  if (const char* given = std::getenv("LOCKSTEP_PRACTICE")) {
    const std::string_view practice = given;
    if (practice != "on" && practice != "off")
      throw UsageError("LOCKSTEP_PRACTICE is on or off, and not '" + std::string(practice) + "'");
    options.practises = practice == "on" ? Practice::always : Practice::never;
  }
  if (options.for_python_job) options.practises = Practice::never;
  options.resource_dir = find_resource_dir();
  options.home_dir = protocol::shared_home();
  if (options.cache_dir.empty()) options.cache_dir = find_cache();
  return options;
}

std::string installation_problem(const Options& options) {
  std::error_code error;
  if (!options.libtorch_problem.empty()) return options.libtorch_problem;
  if (!fs::exists(options.include_root + "/worker/cell/cell.h", error))
    return "the headers of Lockstep are not at " + options.include_root + ": install it again";
  if (!fs::exists(options.libtorch + "/include/torch/headeronly/version.h", error))
    return "the headers of torch are not at " + options.libtorch + "/include: install it again";
  if (!fs::exists(options.resource_dir + "/include/stddef.h", error))
    return "clang 19's own headers are not at " + options.resource_dir +
           (protocol::is_wheel() ? ": install the wheel lockstep-cells again (docs/install.md)"
                                 : ": apt-get install libclang-common-19-dev libclang-19-dev");
  if (options.cache_dir.empty())
    return "there is no folder for the precompiled header: neither XDG_CACHE_HOME nor HOME is set, and this user has "
           "no home. Set XDG_CACHE_HOME to a folder of yours";
  return "";
}

std::string compiler_version() { return "clang " CLANG_VERSION_STRING; }

}  // namespace lockstep::compiler
