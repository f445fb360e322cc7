// Makes keys that nobody can guess: identities of connections, the beginning of the store's keys.
#pragma once
#include <string>

namespace lockstep::shell {

/// Returns 128 bits from the kernel, as 32 hexadecimal digits. Throws StartError.
std::string random_key();

}  // namespace lockstep::shell
