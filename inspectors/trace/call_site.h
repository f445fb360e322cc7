// Where in the user's own code something was called: return addresses, which whoever knows the user's code turns into
// words. In a session the worker does ("cell 7, line 4"); in a plain program nobody does, unless the program says how.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace lockstep::inspect {

/// The innermost return addresses in the user's code, zeros behind them. Few words, so that millions can be kept.
struct CallSite {
  std::array<uintptr_t, 6> addresses{};
  bool empty() const { return addresses[0] == 0; }
  bool operator==(const CallSite&) const = default;
  auto operator<=>(const CallSite&) const = default;
};

struct CallSites {
  /// The calling thread's. Some microseconds.
  CallSite (*capture)() = nullptr;
  /// "cell 7, line 4"; empty where nothing is known.
  std::string (*describe)(const CallSite& site) = nullptr;
};

/// Once, at the program's start.
void set_call_sites(CallSites functions);

/// Empty where nobody knows the user's code.
CallSite capture_call_site();
std::string describe_call_site(const CallSite& site);

}  // namespace lockstep::inspect
