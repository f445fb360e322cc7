#include "compiler/state/header_cache.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <set>
#include <sstream>
#include <vector>

#include "compiler/front_end/front_end.h"
#include "compiler/names/library_names.h"
#include "compiler/process/process.h"
#include "compiler/process/shared_folder.h"
#include "compiler/state/cell_compiler.h"
#include "protocol/checksum.h"
#include "protocol/descriptor.h"
#include "protocol/error.h"
#include "protocol/files.h"
#include "protocol/pipe_channel.h"
#include "protocol/user_folders.h"

namespace lockstep::compiler {

namespace fs = std::filesystem;

namespace {

constexpr const char* kHeader = "cells.pch";
constexpr const char* kPrelude = "libprelude.so";
constexpr const char* kLibraryNames = "names.txt";
constexpr uintmax_t kSpaceNeeded = 400u << 20;  // bytes; the header has some 170 MB

/// Computes FNV-1a.
class Hash {
 public:
  void add(std::string_view text) { value_ = protocol::fnv1a("\xff", protocol::fnv1a(text, value_)); }
  void add_file(const fs::path& path) {
    add(path.filename().string());
    add(protocol::read_file(path).value_or(""));
  }
  /// Takes size and time of a large file instead of its contents. Images of containers keep times in seconds.
  void add_stamp(const fs::path& path) {
    struct stat status = {};
    ::stat(path.c_str(), &status);
    add(path.string() + " " + std::to_string(status.st_size) + " " + std::to_string(status.st_mtim.tv_sec));
  }
  std::string str() const {
    char text[17];
    std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value_));
    return text;
  }

 private:
  uint64_t value_ = protocol::kFnvBasis;
};

/// Runs `work` in a copy of this process, so that its memory is freed. Throws what `work` threw, as StartError.
void in_copy(const std::function<void()>& work) {
  auto [ours, theirs] = make_socket_pair();
  const pid_t pid = start_copy(::getpid());
  if (pid == 0) {
    ours.reset();
    nlohmann::json words = {{"failed", nullptr}};
    try {
      work();
    } catch (const std::exception& error) {
      words["failed"] = error.what();
    }
    try {
      protocol::send_message(theirs.get(), {words, {}});
    } catch (const ChannelError&) {
      // Nobody waits for the result.
    }
    ::_exit(0);
  }
  theirs.reset();
  const auto words = protocol::receive_message(ours.get());
  uninterrupted([&] { return ::waitpid(pid, nullptr, 0); });
  if (!words)
    throw StartError("the compiler crashed, or was killed for lack of memory, while it built the precompiled header");
  if (!words->header.at("failed").is_null()) throw StartError(words->header.at("failed").get<std::string>());
}

void write_file(const fs::path& path, std::string_view bytes) {
  if (const int error = protocol::replace_file(path, bytes, 0666))
    throw StartError("writing " + path.string() + " failed: " + std::strerror(error));
}

/// Returns the headers of Lockstep in the precompiled header, found by following #include "...".
std::set<fs::path> own_headers(const Options& options) {
  const fs::path root = options.include_root;
  std::set<fs::path> found;
  std::vector<std::string> texts = {header_text(options)};
  while (!texts.empty()) {
    std::istringstream text(std::move(texts.back()));
    texts.pop_back();
    for (std::string line; std::getline(text, line);) {
      const size_t open = line.find('"');
      if (!line.starts_with("#include") || open == std::string::npos) continue;
      const fs::path header = root / line.substr(open + 1, line.find('"', open + 1) - open - 1);
      auto content = protocol::read_file(header);
      if (content && found.insert(header).second) texts.push_back(std::move(*content));
    }
  }
  return found;
}

}  // namespace

std::string header_key(const Options& options) {
  Hash hash;
  hash.add(compiler_version());
  for (const auto& flag : compile_flags(options)) hash.add(flag);
  hash.add(header_text(options));
  hash.add(std::to_string(kLibraryNamesVersion));
  for (const auto& header : own_headers(options)) hash.add_file(header);
  hash.add_file(options.libtorch + "/include/torch/headeronly/version.h");
  hash.add_stamp(options.libtorch + "/lib/libtorch_cpu.so");
  hash.add_stamp(options.resource_dir + "/include/stddef.h");
  std::error_code error;
  for (const char* folder : {"/usr/include/x86_64-linux-gnu/c++", "/usr/include/c++"})
    for (const auto& entry : fs::directory_iterator(folder, error)) hash.add_stamp(entry.path());
  hash.add_stamp("/usr/include/features.h");
  return hash.str();
}

namespace {

/// Whether the header of all users can be used. Its owner has to be this user or root.
bool is_usable(const fs::path& shared) {
  if (!is_complete(shared)) return false;
  for (const char* file : {kHeader, kPrelude, kLibraryNames})
    if (::access((shared / file).c_str(), R_OK) != 0 || !protocol::writable_by_others(shared / file).empty())
      return false;
  return true;
}

}  // namespace

std::string header_folder(const Options& options) {
  const std::string key = header_key(options);
  const fs::path shared = fs::path(options.home_dir) / "pch" / key;
  return !options.home_dir.empty() && is_usable(shared) ? shared : fs::path(options.cache_dir) / "pch" / key;
}

HeaderFiles provide_header(const Options& options, const ReportProgress& progress) {
  const std::string problem = installation_problem(options);
  if (!problem.empty()) throw StartError(problem);
  const fs::path folder = header_folder(options);
  const HeaderFiles files{folder / kHeader, folder / kPrelude, folder / kLibraryNames};
  if (!options.home_dir.empty() && folder.parent_path() == fs::path(options.home_dir) / "pch" && is_usable(folder))
    return files;
  const SharedFolder shared{.path = folder,
                            .what = "the precompiled header",
                            .advice = "set XDG_CACHE_HOME to a folder of yours",
                            .space = kSpaceNeeded,
                            .steps = {{kHeader,
                                       [&](const fs::path& path) {
                                         const std::string missing = standard_headers_problem(options);
                                         if (!missing.empty()) throw StartError(missing);
                                         in_copy([&] { build_header(options, path); });
                                       },
                                       "the headers of LibTorch"},
                                      {kPrelude,
                                       [&](const fs::path& path) {
                                         in_copy([&] {
                                           CellCompiler compiler(options, path.parent_path() / kHeader);
                                           write_file(path, compiler.make_prelude());
                                         });
                                       },
                                       "the code that cells share"},
                                      {kLibraryNames,
                                       [&](const fs::path& path) {
                                         in_copy([&] {
                                           CellCompiler compiler(options, path.parent_path() / kHeader);
                                           write_file(path, compiler.make_library_names());
                                         });
                                       },
                                       "the names for completion"}}};
  provide(shared,
          options.for_python_job ? "building the precompiled header of the job's torch (" + options.libtorch + "), once"
                                 : "building the precompiled header of LibTorch, once for this installation",
          progress);
  return files;
}

}  // namespace lockstep::compiler
