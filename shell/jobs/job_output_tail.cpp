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
#include "shell/text/text.h"

namespace lockstep::shell {
namespace {

namespace fs = std::filesystem;

constexpr std::streamoff kMostBytes = 256 << 10;  // of a file, from its end
constexpr size_t kLongestLine = 1000;

/// Returns the value of --log-dir on a command line of torchrun; empty without it.
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
    if (line.size() > kLongestLine) {
      size_t kept = kLongestLine;
      while (kept > 0 && is_continuation_byte(line[kept])) --kept;  // not within a character of UTF-8
      line = line.substr(0, kept) + "…";
    }
    lines.push_back(std::move(line));
  }
  if (lines.size() > count) lines.erase(lines.begin(), lines.end() - static_cast<ptrdiff_t>(count));
  return lines;
}

/// Returns the rank that a folder is named after.
std::optional<int> local_rank(const std::string& folder) {
  int rank = 0;
  const auto [last, problem] = std::from_chars(folder.data(), folder.data() + folder.size(), rank);
  return problem == std::errc() && *last == '\0' ? std::optional(rank) : std::nullopt;
}

struct OutputFile {
  std::string path, stream;  // "stdout.log"
  int rank = 0;  // local
  fs::file_time_type time;
};

/// Finds <folder>/<run>/attempt_<n>/<local rank>/stdout.log.
std::vector<OutputFile> find_files(const std::string& folder) {
  std::vector<OutputFile> files;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(folder, fs::directory_options::skip_permission_denied, error), end;
       !error && entry != end; entry.increment(error)) {
    const fs::path& path = entry->path();
    const std::string name = path.filename();
    const auto rank = local_rank(path.parent_path().filename());
    if ((name != "stdout.log" && name != "stderr.log") || !rank) continue;
    std::error_code ignored;
    files.push_back({.path = path, .stream = name, .rank = *rank, .time = fs::last_write_time(path, ignored)});
  }
  return files;
}

}  // namespace

JobOutputTail::JobOutputTail(int lines, const std::vector<std::string>& launcher)
    : lines_(static_cast<size_t>(lines)), folder_(log_folder(launcher)) {
  if (!folder_.empty()) {
    for (const OutputFile& each : find_files(folder_)) earlier_[each.path] = each.time;
    return;
  }
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
  std::map<std::pair<int, std::string>, OutputFile> newest;  // of each local rank and stream: of the last attempt
  for (const OutputFile& each : find_files(folder_)) {
    if (const auto known = earlier_.find(each.path); known != earlier_.end() && known->second == each.time) continue;
    const auto [known, fresh] = newest.try_emplace({each.rank, each.stream}, each);
    if (!fresh && known->second.time < each.time) known->second = each;
  }
  std::vector<std::pair<std::string, RankSet>> equal;  // in the order of ranks
  for (const auto& [of, file] : newest) {
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
  if (equal.empty() && !newest.empty()) return "lockstep: --tail: the ranks have written nothing\n";
  if (equal.empty())
    return "lockstep: --tail: there are no files with the ranks' output. torchrun, python -m torch.distributed.run and "
           "accelerate launch write them; other launchers don't\n";
  std::string text = fmt::format("last lines of output, at most {} of each rank and stream:\n", lines_);
  for (const auto& [lines, of_ranks] : equal) text += "  " + of_ranks.words() + lines;
  return text;
}

}  // namespace lockstep::shell
