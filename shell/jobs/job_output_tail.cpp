#include "shell/jobs/job_output_tail.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string_view>

#include "protocol/error.h"
#include "protocol/rank_set.h"
#include "shell/processes/random_key.h"

namespace lockstep::shell {
namespace {

namespace fs = std::filesystem;

constexpr std::streamoff kMostBytes = 256 << 10;  // of a file, from its end
constexpr size_t kLongestLine = 1000;

/// The value of --log-dir on a command line of torchrun; empty without it.
std::string log_folder(const std::vector<std::string>& launcher) {
  for (size_t i = 0; i < launcher.size(); ++i)
    for (const std::string_view name : {"--log-dir", "--log_dir"}) {
      const std::string_view word = launcher[i];
      if (word == name && i + 1 < launcher.size()) return launcher[i + 1];
      if (word.starts_with(name) && word.substr(name.size()).starts_with('='))
        return std::string(word.substr(name.size() + 1));
    }
  const char* variable = std::getenv("PET_LOG_DIR");
  return variable ? variable : "";
}

std::vector<std::string> last_lines(const std::string& path, size_t count) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const std::streamoff size = std::max<std::streamoff>(file.tellg(), 0), kept = std::min(size, kMostBytes);
  file.seekg(size - kept);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    // A progress bar writes over its line.
    if (line.ends_with('\r')) line.pop_back();
    line.erase(0, line.rfind('\r') == std::string::npos ? 0 : line.rfind('\r') + 1);
    if (line.size() > kLongestLine) line = line.substr(0, kLongestLine) + "…";
    lines.push_back(std::move(line));
  }
  if (lines.size() > count) lines.erase(lines.begin(), lines.end() - static_cast<ptrdiff_t>(count));
  return lines;
}

struct Newest {
  fs::file_time_type time;
  std::string path;
};

/// <folder>/<run>/attempt_<n>/<local rank>/stdout.log: the newest of each local rank and stream.
std::map<std::pair<int, std::string>, Newest> find_files(const std::string& folder) {
  std::map<std::pair<int, std::string>, Newest> files;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const fs::path& path = entry->path();
    const std::string name = path.filename(), parent = path.parent_path().filename();
    int rank = 0;
    const auto [last, problem] = std::from_chars(parent.data(), parent.data() + parent.size(), rank);
    if ((name != "stdout.log" && name != "stderr.log") || problem != std::errc() || *last != '\0') continue;
    std::error_code ignored;
    const Newest found{fs::last_write_time(path, ignored), path};
    const auto [known, fresh] = files.try_emplace({rank, name}, found);
    if (!fresh && known->second.time < found.time) known->second = found;
  }
  return files;
}

}  // namespace

JobOutputTail::JobOutputTail(int lines, const std::vector<std::string>& launcher)
    : lines_(static_cast<size_t>(lines)), folder_(log_folder(launcher)) {
  if (!folder_.empty()) return;
  std::error_code error;
  folder_ = (fs::temp_directory_path(error) / ("lockstep-output-" + random_key().substr(0, 12))).string();
  if (error || ::mkdir(folder_.c_str(), 0700) != 0)
    throw StartError("--tail: the folder " + folder_ + " could not be made: " + std::strerror(errno) +
                     "; set TMPDIR to another one");
  is_own_ = true;
}

JobOutputTail::~JobOutputTail() {
  std::error_code ignored;
  if (is_own_) fs::remove_all(folder_, ignored);
}

void JobOutputTail::add_to(std::map<std::string, std::string>& environment) const {
  if (is_own_) environment["PET_LOG_DIR"] = folder_;
  if (!std::getenv("PET_TEE") && !std::getenv("PET_REDIRECTS")) environment["PET_TEE"] = "3";
}

std::string JobOutputTail::text(const std::map<int, int>& ranks) const {
  std::vector<std::pair<std::string, RankSet>> equal;  // in the order of ranks
  for (const auto& [of, file] : find_files(folder_)) {
    const auto& [local, name] = of;
    const auto rank = ranks.find(local);
    std::string lines;
    for (const std::string& line : last_lines(file.path, lines_)) lines += "    " + line + "\n";
    if (lines.empty()) continue;
    lines = fmt::format(", {}:\n{}", name == "stderr.log" ? "standard error" : "standard output", lines);
    const auto known = std::ranges::find(equal, lines, &std::pair<std::string, RankSet>::first);
    if (known == equal.end())
      equal.emplace_back(lines, RankSet{rank == ranks.end() ? local : rank->second});
    else
      known->second.insert(rank == ranks.end() ? local : rank->second);
  }
  if (equal.empty())
    return "lockstep: --tail: there are no files with the ranks' output. torchrun, python -m torch.distributed.run and "
           "accelerate launch write them; other launchers don't\n";
  std::string text = fmt::format("last lines of output, at most {} of each rank and stream:\n", lines_);
  for (const auto& [lines, of_ranks] : equal) text += "  " + of_ranks.words() + lines;
  return text;
}

}  // namespace lockstep::shell
