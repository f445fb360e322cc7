#include "python/agent/gloo_connections.h"

#include <dlfcn.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <string>

namespace lockstep::agent {
namespace {

namespace fs = std::filesystem;

/// Reads this process's own memory at an address that may be none.
template <typename T>
std::optional<T> peek(uint64_t address) {
  T value;
  iovec here{&value, sizeof value}, there{reinterpret_cast<void*>(address), sizeof value};
  if (::process_vm_readv(::getpid(), &here, 1, &there, 1, 0) != static_cast<ssize_t>(sizeof value)) return std::nullopt;
  return value;
}

/// Returns the name in the type information of the object at `address`, as the ABI of C++ lays both out, where the
/// virtual table is a part of a library or program; else an empty text.
std::string type_name(uint64_t address) {
  constexpr uint64_t kPointer = sizeof(void*);
  const auto table = peek<uint64_t>(address);
  Dl_info library;
  if (!table || *table % kPointer != 0 || ::dladdr(reinterpret_cast<void*>(*table), &library) == 0) return "";
  const auto type = peek<uint64_t>(*table - kPointer);
  if (!type || *type % kPointer != 0 || ::dladdr(reinterpret_cast<void*>(*type), &library) == 0) return "";
  const auto name = peek<uint64_t>(*type + kPointer);
  if (!name || ::dladdr(reinterpret_cast<void*>(*name), &library) == 0) return "";
  std::string text;
  for (uint64_t at = *name; text.size() < 100; ++at) {
    const auto letter = peek<char>(at);
    if (!letter || *letter == '\0') break;
    text += *letter;
  }
  return text;
}

bool is_gloo_pair(uint64_t data) {
  const std::string name = type_name(data);
  return name == "N4gloo9transport3tcp4PairE" || name == "N4gloo9transport3tcp3tls4PairE";
}

/// Returns what the descriptors of this process are: "socket:[4711]", "anon_inode:[eventpoll]".
std::map<int, std::string> descriptors() {
  std::map<int, std::string> found;
  std::error_code error;
  for (fs::directory_iterator entry("/proc/self/fd", error), end; !error && entry != end; entry.increment(error)) {
    std::error_code gone;
    const std::string what = fs::read_symlink(entry->path(), gone);
    if (!gone) found[std::stoi(entry->path().filename())] = what;
  }
  return found;
}

}  // namespace

size_t shut_down_gloo_connections() {
  const std::map<int, std::string> open = descriptors();
  std::map<std::string, int> copies;
  for (const auto& [descriptor, what] : open) ++copies[what];
  size_t count = 0;
  for (const auto& [epoll, kind] : open) {
    if (kind != "anon_inode:[eventpoll]") continue;
    std::ifstream file("/proc/self/fdinfo/" + std::to_string(epoll));
    // A line is "tfd:       14 events:       19 data:     7f1234567890  pos:0 ino:57 sdev:8".
    for (std::string line; std::getline(file, line);) {
      std::istringstream words(line);
      std::string word, events;
      int descriptor = -1;
      uint64_t data = 0;
      if (!(words >> word >> descriptor) || word != "tfd:" || !(words >> word >> events >> word) || word != "data:" ||
          !(words >> std::hex >> data) || !is_gloo_pair(data))
        continue;
      const auto socket = open.find(descriptor);
      // Groups of liblockstep (the inspectors' own) have two descriptors for each connection.
      if (socket == open.end() || copies[socket->second] > 1) continue;
      if (::shutdown(descriptor, SHUT_RDWR) == 0) ++count;
    }
  }
  return count;
}

}  // namespace lockstep::agent
