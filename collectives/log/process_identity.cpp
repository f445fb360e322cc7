#include "collectives/log/process_identity.h"

#include <fmt/format.h>
#include <unistd.h>

#include <climits>
#include <fstream>
#include <sstream>

namespace lockstep::dist {

std::optional<uint64_t> process_start_time(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string text;
  if (!std::getline(file, text)) return std::nullopt;
  const size_t end_of_name = text.rfind(')');  // the name may hold blanks and parentheses
  if (end_of_name == std::string::npos) return std::nullopt;
  std::istringstream fields(text.substr(end_of_name + 1));
  std::string field;
  for (int number = 3; fields >> field; ++number) {
    if (number == 3 && (field == "Z" || field == "X")) return std::nullopt;
    if (number == 22) return std::stoull(field);
  }
  return std::nullopt;
}

namespace {
std::string kernel_and(const char* name_space) {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  char space[PATH_MAX];
  const ssize_t length = readlink(name_space, space, sizeof space);
  return boot + "/" + std::string(space, length > 0 ? length : 0);
}
}  // namespace

std::string machine_identity() { return kernel_and("/proc/self/ns/pid"); }
std::string network_identity() { return kernel_and("/proc/self/ns/net"); }

}  // namespace lockstep::dist
