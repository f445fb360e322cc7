// Keys that nobody can guess: identities of connections, the beginning of the store's keys.
#pragma once
#include <string>

namespace lockstep::shell {

/// 128 bits from the kernel, as 32 hexadecimal digits. Throws StartError.
std::string random_key();

}  // namespace lockstep::shell
