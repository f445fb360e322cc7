#include "shell/processes/random_key.h"

#include <sys/random.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "protocol/error.h"

namespace lockstep::shell {

std::string random_key() {
  std::array<unsigned char, 16> bytes;
  size_t filled = 0;
  while (filled < bytes.size()) {
    const ssize_t n = ::getrandom(bytes.data() + filled, bytes.size() - filled, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) throw StartError(std::string("the kernel gives no random numbers: ") + std::strerror(errno));
    filled += static_cast<size_t>(n);
  }
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : bytes) text += {kDigits[byte >> 4], kDigits[byte & 15]};
  return text;
}

}  // namespace lockstep::shell
