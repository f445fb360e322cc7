#include "shell/text_output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace lockstep::shell {

void TextOutput::write(std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd_, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      if (errno != EPIPE && !lost_) {
        lost_ = true;
        fmt::print(stderr, "lockstep: the output can't be written: {}\n", std::strerror(errno));
      }
      return;
    }
    text.remove_prefix(static_cast<size_t>(n));
  }
}

}  // namespace lockstep::shell
