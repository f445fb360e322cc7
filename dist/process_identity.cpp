#include "dist/process_identity.h"

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

std::string machine_identity() {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  char space[PATH_MAX];
  const ssize_t length = readlink("/proc/self/ns/pid", space, sizeof space);
  return boot + "/" + std::string(space, length > 0 ? length : 0);
}

}  // namespace lockstep::dist
