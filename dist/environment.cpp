#include "dist/environment.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "dist/tcp_store.h"

namespace lockstep::dist {

namespace {
std::optional<std::string> variable(const char* name) {
  const char* value = std::getenv(name);
  return value && *value ? std::optional<std::string>(value) : std::nullopt;
}

int parse_int(const std::string& what, const std::string& text, int low, int high) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < low || value > high)
    throw ArgumentError(fmt::format("{} is '{}'; it must be a whole number from {} to {}", what, text, low, high));
  return value;
}

std::optional<int> int_variable(const char* name, int low, int high) {
  const auto text = variable(name);
  return text ? std::optional<int>(parse_int(name, *text, low, high)) : std::nullopt;
}

constexpr int kMostRanks = 1 << 20;

std::pair<std::string, int> split_address(const std::string& text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0)
    throw ArgumentError(fmt::format("init_method 'tcp://{}' needs a host and a port: tcp://127.0.0.1:29500", text));
  return {text.substr(0, colon), parse_int("the port of init_method", text.substr(colon + 1), 1, 65535)};
}
}  // namespace

bool is_loopback(const std::string& host) { return host == "localhost" || host == "::1" || host.starts_with("127."); }

Meeting find_meeting(const InitOptions& options) {
  const bool from_environment = options.init_method == "env://";
  Meeting meeting;
  const auto rank = options.rank >= 0 ? std::optional(options.rank) : int_variable("RANK", 0, kMostRanks - 1);
  const auto world_size =
      options.world_size >= 0 ? std::optional(options.world_size) : int_variable("WORLD_SIZE", 1, kMostRanks);
  if (!rank && !world_size && from_environment && !options.store) {
    meeting.store = c10::make_intrusive<c10d::HashStore>();
    return meeting;
  }
  if (!rank || !world_size)
    throw ArgumentError(
        fmt::format("{} is set, but {} is not. A launcher (torchrun, srun with a wrapper, mpirun) sets both; alone, "
                    "set neither",
                    rank ? "RANK" : "WORLD_SIZE", rank ? "WORLD_SIZE" : "RANK"));
  if (*rank >= *world_size)
    throw ArgumentError(
        fmt::format("RANK is {}, but WORLD_SIZE is {}; ranks go from 0 to {}", *rank, *world_size, *world_size - 1));
  meeting.rank = *rank;
  meeting.world_size = *world_size;
  if (options.store) {
    meeting.store = options.store;
    return meeting;
  }
  if (options.init_method.starts_with("file://")) {
    meeting.store = c10::make_intrusive<c10d::FileStore>(options.init_method.substr(7), *world_size);
    return meeting;
  }

  std::string host;
  int port = 0;
  bool serves = meeting.rank == 0;
  if (from_environment) {
    const auto address = variable("MASTER_ADDR");
    if (!address || !variable("MASTER_PORT"))
      throw ArgumentError(fmt::format(
          "RANK and WORLD_SIZE are set, but {} is not; set it to {}", address ? "MASTER_PORT" : "MASTER_ADDR",
          address ? "a free port of rank 0's machine" : "the machine of rank 0 (127.0.0.1 for one machine)"));
    host = *address;
    port = *int_variable("MASTER_PORT", 1, 65535);
    if (variable("TORCHELASTIC_USE_AGENT_STORE") == "True") serves = false;  // torchrun's agent serves it
  } else if (options.init_method.starts_with("tcp://")) {
    std::tie(host, port) = split_address(options.init_method.substr(6));
  } else {
    throw ArgumentError(fmt::format("init_method '{}' is unknown; there are env://, file:///path and tcp://host:port",
                                    options.init_method));
  }
  const bool one_machine = int_variable("LOCAL_WORLD_SIZE", 1, kMostRanks).value_or(0) == meeting.world_size;
  meeting.loopback = is_loopback(host) || one_machine;
  const auto patience = std::min(options.timeout, std::chrono::milliseconds(std::chrono::minutes(5)));
  meeting.store = serves ? serve_store(host, port, patience) : connect_store(host, port, patience);
  if (const auto restart = variable("TORCHELASTIC_RESTART_COUNT"))
    meeting.store = c10::make_intrusive<c10d::PrefixStore>("attempt-" + *restart, meeting.store);
  return meeting;
}

}  // namespace lockstep::dist
