#include "shell/jupyter/output_limit.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "shell/text/text.h"

namespace lockstep::shell::jupyter {

void OutputLimit::begin() {
  is_cut_ = false;
  lines_ = held_lines_ = 0;
  bytes_ = held_bytes_ = 0;
  shown_.clear();
  last_.clear();
  fd_ = -1;
  is_complete_ = true;
}

std::string OutputLimit::take(std::string_view text) {
  size_t fits = 0;
  if (!is_cut_) {
    while (fits < text.size()) {
      const size_t end = std::min(text.find('\n', fits), text.size() - 1) + 1;
      if (lines_ == kMostLines || bytes_ + (end - fits) > kMostBytes) break;
      ++lines_;
      bytes_ += end - fits;
      fits = end;
    }
    shown_ += text.substr(0, fits);
    if (fits == text.size()) return std::string(text);
    is_cut_ = true;
    open_file();
    write(std::exchange(shown_, {}));
  }
  const std::string_view held = text.substr(fits);
  write(held);
  held_bytes_ += held.size();
  const std::vector<std::string_view> lines = lines_of(held);
  held_lines_ += std::ssize(lines);
  const size_t first = lines.size() > kLastLines ? lines.size() - kLastLines : 0;
  for (size_t i = first; i < lines.size(); ++i) last_.emplace_back(lines[i].substr(0, 2000));
  while (last_.size() > kLastLines) last_.pop_front();
  return std::string(text.substr(0, fits));
}

void OutputLimit::open_file() {
  std::error_code error;
  const std::string folder = std::filesystem::temp_directory_path(error).string();
  fd_ = error ? -1 : ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd_ < 0) {
    is_complete_ = false;
    return;
  }
  files_.emplace_back(fd_);
  if (files_.size() > kMostFiles) files_.pop_front();
}

void OutputLimit::write(std::string_view text) {
  if (fd_ >= 0 && is_complete_) is_complete_ = write_all(fd_, text);  // else there is no space
}

std::string OutputLimit::cut_text() const {
  return fmt::format("… more than {} lines or {} kB: the rest is not shown, but for the last lines\n", kMostLines,
                     kMostBytes / 1000);
}

std::string OutputLimit::end_text() const {
  std::string text;
  const int64_t missing = held_lines_ - std::ssize(last_);
  if (missing > 0)
    text = fmt::format("… {} lines ({:.1f} MB in all) are not shown", missing,
                       static_cast<double>(bytes_ + held_bytes_) / 1e6);
  if (missing > 0 && fd_ >= 0 && is_complete_)
    text += fmt::format("; !cp /proc/{}/fd/{} output.txt keeps all of them", ::getpid(), fd_);
  else if (missing > 0)
    text += "; there was no space to keep them";
  if (missing > 0) text += '\n';
  for (const std::string& line : last_) text += line + "\n";
  return text;
}

}  // namespace lockstep::shell::jupyter
