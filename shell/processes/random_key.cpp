#include "shell/processes/random_key.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "protocol/error.h"

namespace lockstep::shell {

std::string random_key() {
  std::array<unsigned char, 16> bytes;
  if (::getentropy(bytes.data(), bytes.size()) != 0)
    throw StartError(std::string("the kernel gives no random numbers: ") + std::strerror(errno));
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : bytes) text += {kDigits[byte >> 4], kDigits[byte & 15]};
  return text;
}

}  // namespace lockstep::shell
