#include "compiler/header_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <vector>

#include "compiler/cell_compiler.h"
#include "compiler/front_end.h"
#include "compiler/process.h"
#include "protocol/error.h"
#include "protocol/pipe_channel.h"

namespace lockstep::compiler {

namespace fs = std::filesystem;

namespace {

constexpr uintmax_t kSpaceNeeded =
    400u << 20;  // bytes; the header has some 170 MB, and is written before it is renamed

/// FNV-1a.
class Hash {
 public:
  void add(std::string_view text) {
    for (unsigned char c : text) value_ = (value_ ^ c) * 0x100000001b3u;
    value_ = (value_ ^ 0xff) * 0x100000001b3u;
  }
  void add_file(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    add(path.filename().string());
    add(text.str());
  }
  /// Large files: their size and time stand for them.
  void add_stamp(const fs::path& path) {
    struct stat status = {};
    ::stat(path.c_str(), &status);
    add(path.string() + " " + std::to_string(status.st_size) + " " + std::to_string(status.st_mtim.tv_sec) + "." +
        std::to_string(status.st_mtim.tv_nsec));
  }
  std::string str() const {
    char text[17];
    std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value_));
    return text;
  }

 private:
  uint64_t value_ = 0xcbf29ce484222325u;
};

std::string hash_of_file(const fs::path& path) {
  struct stat status = {};
  if (::stat(path.c_str(), &status) != 0) return "";
  return std::to_string(status.st_size) + "." + std::to_string(status.st_mtim.tv_sec) + "." +
         std::to_string(status.st_mtim.tv_nsec);
}

/// Says what the folder held when it was made: a file cut short, or written to, is not what it says.
std::string inventory(const fs::path& folder) {
  return hash_of_file(folder / "cells.pch") + " " + hash_of_file(folder / "libprelude.so") + "\n";
}

void check_space(const fs::path& folder) {
  std::error_code error;
  const auto space = fs::space(folder, error);
  if (!error && space.available < kSpaceNeeded)
    throw StartError("no space for the precompiled header in " + folder.string() + ": " +
                     std::to_string(space.available >> 20) + " MB are free, " + std::to_string(kSpaceNeeded >> 20) +
                     " MB are needed. Make room, or set XDG_CACHE_HOME to another folder");
}

/// Runs `work` in a copy of this process, whose memory is gone afterwards. Throws what `work` threw, as StartError.
void in_copy(const std::function<void()>& work) {
  auto [ours, theirs] = make_channel();
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
  while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  if (!words)
    throw StartError("the compiler crashed, or was killed for lack of memory, while it built the precompiled header");
  if (!words->header.at("failed").is_null()) throw StartError(words->header.at("failed").get<std::string>());
}

void write_file(const fs::path& path, std::string_view bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (!file) throw StartError("writing " + path.string() + " failed: " + std::strerror(errno));
}

void build(const Options& options, const fs::path& folder) {
  const fs::path header = folder / "cells.pch";
  in_copy([&] { build_header(options, header); });
  in_copy([&] {
    CellCompiler compiler(options, header);
    write_file(folder / "libprelude.so", compiler.make_prelude());
  });
  write_file(folder / "inventory", inventory(folder));
}

/// Held until its end; waits while another process has it.
class Lock {
 public:
  explicit Lock(const fs::path& path) : fd_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
    if (!fd_)
      throw StartError("the cache " + path.parent_path().string() + " can't be written to: " + std::strerror(errno) +
                       ". Set XDG_CACHE_HOME to a folder that can");
    while (::flock(fd_.get(), LOCK_EX) != 0)
      if (errno != EINTR)
        throw StartError("the cache's lock " + path.string() + " can't be had: " + std::strerror(errno));
  }

 private:
  Descriptor fd_;
};

/// Headers of Lockstep that the precompiled header is made of, found by following #include "...".
std::set<fs::path> own_headers(const fs::path& root) {
  std::set<fs::path> found;
  std::vector<std::string> texts = {header_text()};
  while (!texts.empty()) {
    std::istringstream text(std::move(texts.back()));
    texts.pop_back();
    for (std::string line; std::getline(text, line);) {
      const size_t open = line.find('"');
      if (!line.starts_with("#include") || open == std::string::npos) continue;
      const fs::path header = root / line.substr(open + 1, line.find('"', open + 1) - open - 1);
      std::ifstream file(header, std::ios::binary);
      if (!file || !found.insert(header).second) continue;
      std::ostringstream content;
      content << file.rdbuf();
      texts.push_back(content.str());
    }
  }
  return found;
}

/// Removes what killed builds have left of this key, and headers that have not been used for long.
void clean_up(const fs::path& parent, const std::string& key) {
  constexpr auto kKeep = std::chrono::hours(30 * 24);
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(parent, error)) {
    const std::string name = entry.path().filename();
    const bool draft_of_ours = name.starts_with(key + ".") && name != key + ".lock";
    const auto used = fs::last_write_time(entry.path() / "inventory", error);
    const bool old = !error && entry.is_directory() && fs::file_time_type::clock::now() - used > kKeep;
    if (draft_of_ours || old) fs::remove_all(entry.path(), error);
    if (old) fs::remove(parent / (name + ".lock"), error);
  }
}

/// Says that the header is in use.
void touch(const fs::path& folder) {
  std::error_code error;
  fs::last_write_time(folder / "inventory", fs::file_time_type::clock::now(), error);
}

}  // namespace

bool is_whole(const std::string& folder) {
  std::ifstream file(folder + "/inventory");
  std::string line;
  return std::getline(file, line) && line + "\n" == inventory(folder);
}

void discard_header(const HeaderFiles& files) {
  std::error_code error;
  fs::remove(fs::path(files.precompiled).parent_path() / "inventory", error);
}

std::string header_key(const Options& options) {
  Hash hash;
  hash.add(compiler_version());
  for (const auto& flag : compile_flags(options)) hash.add(flag);
  hash.add(header_text());
  for (const auto& header : own_headers(options.include_root)) hash.add_file(header);
  hash.add_file(options.libtorch + "/include/torch/headeronly/version.h");
  hash.add_stamp(options.libtorch + "/lib/libtorch_cpu.so");
  hash.add_stamp(options.resource_dir + "/include/stddef.h");
  std::error_code error;
  for (const char* folder : {"/usr/include/x86_64-linux-gnu/c++", "/usr/include/c++"})
    for (const auto& entry : fs::directory_iterator(folder, error)) hash.add_stamp(entry.path());
  hash.add_stamp("/usr/include/features.h");
  return hash.str();
}

std::string header_folder(const Options& options) { return fs::path(options.cache_dir) / "pch" / header_key(options); }

HeaderFiles provide_header(const Options& options, const std::function<void(const std::string&)>& progress) {
  const std::string problem = installation_problem(options);
  if (!problem.empty()) throw StartError(problem);
  const fs::path folder = header_folder(options);
  const fs::path parent = folder.parent_path();
  const std::string key = folder.filename();
  const HeaderFiles files{folder / "cells.pch", folder / "libprelude.so"};
  if (is_whole(folder)) return touch(folder), files;

  std::error_code error;
  fs::create_directories(parent, error);
  if (error)
    throw StartError("the cache " + parent.string() + " can't be made: " + error.message() +
                     ". Set XDG_CACHE_HOME to a folder that can be written to");
  const Lock lock(parent / (key + ".lock"));
  if (is_whole(folder)) return files;  // another session has built it meanwhile
  clean_up(parent, key);
  check_space(parent);
  progress("building the precompiled header of LibTorch (once, about half a minute)");
  std::string draft = (parent / (key + ".XXXXXX")).string();
  if (!::mkdtemp(draft.data()))
    throw StartError("the cache " + parent.string() + " can't be written to: " + std::strerror(errno) +
                     ". Set XDG_CACHE_HOME to a folder that can");
  try {
    build(options, draft);
    fs::remove_all(folder, error);  // damaged
    fs::rename(draft, folder);
  } catch (...) {  // whatever it is, no half-built folder stays
    fs::remove_all(draft, error);
    check_space(parent);
    throw;
  }
  return files;
}

}  // namespace lockstep::compiler
