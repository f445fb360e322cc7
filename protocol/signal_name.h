// The names of signals.
#pragma once
#include <cstring>
#include <string>

namespace lockstep::protocol {

/// Returns "SIGSEGV"; "signal 63" for one without a name.
inline std::string signal_name(int signal) {
  const char* const name = ::sigabbrev_np(signal);
  return name ? std::string("SIG") + name : "signal " + std::to_string(signal);
}

}  // namespace lockstep::protocol
