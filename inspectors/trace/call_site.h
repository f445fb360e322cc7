// Says where in the user's code something was called: return addresses, and functions that turn them into words. In a
// session the worker sets these functions ("cell 7, line 4"); in a plain program they find its lines
// (program_call_sites.h).
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace lockstep::inspect {

/// Holds the innermost return addresses in the user's code, followed by zeros. Small, so that millions can be kept.
struct CallSite {
  std::array<uintptr_t, 6> addresses{};
  bool empty() const { return addresses[0] == 0; }
  bool operator==(const CallSite&) const = default;
  auto operator<=>(const CallSite&) const = default;
};

struct CallSites {
  /// Returns the call site of the calling thread. Takes some microseconds.
  CallSite (*capture)() = nullptr;
  /// Returns "cell 7, line 4"; empty for an unknown site.
  std::string (*describe)(const CallSite& site) = nullptr;
};

/// Called once, at the program's start.
void set_call_sites(CallSites functions);

/// Returns an empty one without functions.
CallSite capture_call_site();
std::string describe_call_site(const CallSite& site);

}  // namespace lockstep::inspect
