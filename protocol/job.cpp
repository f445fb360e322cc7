#include "protocol/job.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "protocol/error.h"

namespace lockstep::protocol {

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

void write_at_once(const std::string& path, const std::string& text) {
  const std::string fresh = path + "." + std::to_string(::getpid());
  const int file = ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  const bool written = file >= 0 && ::write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const int error = errno;
  if (file >= 0) ::close(file);
  if (written && ::rename(fresh.c_str(), path.c_str()) == 0) return;
  const std::string why = std::strerror(written ? errno : error);
  ::unlink(fresh.c_str());
  throw Error(path + " could not be written: " + why);
}

}  // namespace lockstep::protocol
