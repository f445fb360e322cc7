#include "protocol/job.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>

#include "protocol/error.h"

namespace lockstep::protocol {

std::string launcher_report(const std::string& folder) { return folder + "/launcher.json"; }

std::string rank_file(const std::string& folder, int rank) {
  return folder + "/rank-" + std::to_string(rank) + ".json";
}

std::string rank_socket(const std::string& folder, int rank) {
  return folder + "/rank-" + std::to_string(rank) + ".sock";
}

std::string rank_log(const std::string& folder, int rank) { return folder + "/rank-" + std::to_string(rank) + ".log"; }

std::string rank_trace(const std::string& folder, int rank, bool nccl) {
  return folder + "/rank-" + std::to_string(rank) + (nccl ? ".nccl-trace" : ".trace");
}

namespace {

/// 0, or the errno.
int write_text(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = ::write(file, text.data(), text.size());
    if (count < 0 && errno != EINTR) return errno;
    if (count > 0) text.remove_prefix(static_cast<size_t>(count));  // a disk that gets full takes a part first
  }
  return 0;
}

}  // namespace

void write_at_once(const std::string& path, const std::string& text) {
  const std::string fresh = path + "." + std::to_string(::getpid());
  const int file = ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  int error = file < 0 ? errno : write_text(file, text);
  if (file >= 0) ::close(file);
  if (error == 0 && ::rename(fresh.c_str(), path.c_str()) == 0) return;
  if (error == 0) error = errno;
  ::unlink(fresh.c_str());
  throw Error(path + " could not be written: " + std::strerror(error));
}

}  // namespace lockstep::protocol
