#include "collectives/transport/nccl_environment.h"

#include <fmt/format.h>
#include <strings.h>

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string_view>

namespace lockstep::dist {

namespace {
/// ProcessGroupNCCL takes some under an older name, too.
const char* older_name(std::string_view name) {
  if (name == "TORCH_NCCL_ASYNC_ERROR_HANDLING") return "NCCL_ASYNC_ERROR_HANDLING";
  if (name == "TORCH_NCCL_BLOCKING_WAIT") return "NCCL_BLOCKING_WAIT";
  if (name == "TORCH_NCCL_DESYNC_DEBUG") return "NCCL_DESYNC_DEBUG";
  if (name == "TORCH_NCCL_ENABLE_TIMING") return "NCCL_ENABLE_TIMING";
  return nullptr;
}

// With either, ProcessGroupNCCL takes TORCH_NCCL_ASYNC_ERROR_HANDLING=0 back.
constexpr const char* kEndsProcess =
    "it turns the error handling of LibTorch's watchdog on, which ends the rank's process after an error";

bool is_yes(std::string_view value) { return value == "1" || value == "y" || value == "yes" || value == "true"; }
bool is_no(std::string_view value) { return value == "0" || value == "n" || value == "no" || value == "false"; }
bool same(std::string_view a, std::string_view b) {
  return a == b || (is_yes(a) && is_yes(b)) || (is_no(a) && is_no(b));
}
}  // namespace

std::vector<NcclVariable> nccl_variables(bool loopback) {
  std::vector<NcclVariable> variables = {
      // Lockstep handles errors and time limits itself: it aborts the communicators and reports the cause.
      {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "0",
       "the watchdog of LibTorch acts on an error by itself, and with 1 or 3 ends the rank's process"},
      {"TORCH_NCCL_DESYNC_DEBUG", "0", kEndsProcess},
      {"TORCH_NCCL_ENABLE_MONITORING", "0", "the rank's process is ended when a call of CUDA blocks for minutes"},
      {"TORCH_NCCL_RETHROW_CUDA_ERRORS", "0",
       "the watchdog ends the rank's process when a kernel fails, before the cell can report it"},
      // The dump of another rank's error would keep the watchdog asleep for a minute, and with it the end of the group.
      {"TORCH_NCCL_DUMP_ON_TIMEOUT", "0", "after an error on any rank the watchdog writes files and waits for that"},
      {"TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC", "1", "after an error the watchdog sleeps four times that long"},
      {"TORCH_NCCL_BLOCKING_WAIT", "0", "there is no watchdog, so that nobody learns when a collective is done"},
      // Without events at their start, collectives that wait for their stream can't be told from those that run.
      {"TORCH_NCCL_ENABLE_TIMING", "1", "collectives that wait for their stream look like those that run"},
      {"TORCH_NCCL_SHOW_EAGER_INIT_P2P_SERIALIZATION_WARNING", "0", "send and recv warn once"},
      // Connections are made when the group is, and not by the first collective of each kind, in which the host would
      // wait for its peers where no abort reaches it.
      {"NCCL_RUNTIME_CONNECT", "0", "the first collective of a kind may block its thread, and abort does not free it"},
  };
  if (loopback) {
    // By default NCCL takes the first interface that is not the loopback one, and its RAS listens for every user.
    variables.push_back({"NCCL_SOCKET_IFNAME", "lo", "NCCL listens on that interface for everyone who reaches it"});
    variables.push_back({"NCCL_RAS_ENABLE", "0", "NCCL's RAS listens, at localhost:28028, for every user"});
  }
  return variables;
}

NcclEnvironment choose_nccl_environment(const std::function<const char*(const char*)>& lookup, bool loopback) {
  NcclEnvironment result;
  // Compares as c10d does.
  if (const char* level = lookup("TORCH_DISTRIBUTED_DEBUG"); level && ::strcasecmp(level, "DETAIL") == 0)
    result.notes.push_back(
        fmt::format("TORCH_DISTRIBUTED_DEBUG={} is kept as you set it (INFO will do): {}", level, kEndsProcess));
  for (const NcclVariable& variable : nccl_variables(loopback)) {
    const char* name = variable.name;
    const char* value = lookup(name);
    if (const char* older = older_name(name); !value && older) {
      value = lookup(older);
      if (value) name = older;
    }
    if (!value)
      result.set.emplace(variable.name, variable.value);
    else if (!same(value, variable.value))
      result.notes.push_back(
          fmt::format("{}={} is kept as you set it (Lockstep uses {}): {}", name, value, variable.value, variable.why));
  }
  return result;
}

void set_nccl_environment(bool loopback) {
  static std::once_flag once;
  std::call_once(once, [loopback] {
    const NcclEnvironment chosen =
        choose_nccl_environment([](const char* name) -> const char* { return std::getenv(name); }, loopback);
    for (const auto& [name, value] : chosen.set) ::setenv(name.c_str(), value.c_str(), 1);
    for (const std::string& note : chosen.notes) std::fprintf(stderr, "%s\n", note.c_str());
  });
}

}  // namespace lockstep::dist
