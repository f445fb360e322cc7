#include "inspectors/trace/call_site.h"

#include <atomic>

#include "inspectors/trace/program_call_sites.h"

namespace lockstep::inspect {
namespace {

std::atomic<CallSite (*)()> capture_function{capture_program_call_site};
std::atomic<std::string (*)(const CallSite&)> describe_function{describe_program_call_site};

}  // namespace

void set_call_sites(CallSites functions) {
  capture_function = functions.capture;
  describe_function = functions.describe;
}

CallSite capture_call_site() {
  const auto capture = capture_function.load();
  return capture ? capture() : CallSite{};
}

std::string describe_call_site(const CallSite& site) {
  const auto describe = describe_function.load();
  return describe && !site.empty() ? describe(site) : std::string();
}

}  // namespace lockstep::inspect
