// Addresses of Unix sockets in the file system.
#pragma once
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <string_view>

#include "protocol/runtime_folder.h"

namespace lockstep {

/// Returns nothing, and ENAMETOOLONG in errno, where the path is longer than kLongestSocketPath.
inline std::optional<sockaddr_un> unix_address(std::string_view path) {
  sockaddr_un address = {};
  static_assert(sizeof address.sun_path > protocol::kLongestSocketPath);
  if (path.size() > protocol::kLongestSocketPath) {
    errno = ENAMETOOLONG;
    return std::nullopt;
  }
  address.sun_family = AF_UNIX;
  std::ranges::copy(path, address.sun_path);
  return address;
}

}  // namespace lockstep
