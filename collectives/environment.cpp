#include "collectives/environment.h"

#include <fmt/format.h>

#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "collectives/transport/tcp_store.h"
#include "protocol/environment.h"
#include "protocol/whole_number.h"

namespace lockstep::dist {

namespace {
int parse_int(const std::string& what, const std::string& text, int low, int high) {
  if (const auto value = protocol::whole_number(text, low, high)) return *value;
  throw ArgumentError(fmt::format("{} is '{}'; it must be a whole number from {} to {}", what, text, low, high));
}

std::optional<int> int_variable(const char* name, int low, int high) {
  const std::string text = protocol::variable(name);
  return text.empty() ? std::nullopt : std::optional<int>(parse_int(name, text, low, high));
}

constexpr int kMostRanks = 1 << 20;

std::pair<std::string, int> split_address(const std::string& text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0)
    throw ArgumentError(fmt::format("init_method 'tcp://{}' needs a host and a port: tcp://127.0.0.1:29500", text));
  std::string host = text.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);  // an IPv6 address
  return {host, parse_int("the port of init_method", text.substr(colon + 1), 1, 65535)};
}

/// A number from the call, or else from the environment.
struct Number {
  std::optional<int> value;
  const char* variable;
  const char* option;
  bool from_call;
  std::string name() const { return from_call ? option : variable; }
};
Number find_number(const char* variable, const char* option, int given, int low, int high) {
  if (given < 0) return {int_variable(variable, low, high), variable, option, false};
  return {parse_int(option, std::to_string(given), low, high), variable, option, true};
}

[[noreturn]] void throw_incomplete(const InitOptions& options, const Number& rank, const Number& world_size) {
  const std::string way = options.store ? "a store" : fmt::format("init_method '{}'", options.init_method);
  if (!rank.value && !world_size.value)
    throw ArgumentError(
        fmt::format("{} needs to know which rank this is, and of how many: give InitOptions::rank and "
                    "InitOptions::world_size, or set RANK and WORLD_SIZE",
                    way));
  const Number& known = rank.value ? rank : world_size;
  const Number& missing = rank.value ? world_size : rank;
  throw ArgumentError(
      fmt::format("{} is set, but {} is not (nor {}). A launcher (torchrun, srun with a wrapper, mpirun) "
                  "sets RANK and WORLD_SIZE; alone, set neither",
                  known.name(), missing.variable, missing.option));
}
}  // namespace

bool names_no_world(const InitOptions& options) {
  return options.init_method == "env://" && !options.store && options.rank < 0 && options.world_size < 0 &&
         protocol::variable("RANK").empty() && protocol::variable("WORLD_SIZE").empty();
}

RendezvousInfo find_rendezvous(const InitOptions& options) {
  const bool from_environment = options.init_method == "env://";
  RendezvousInfo found;
  if (names_no_world(options)) {
    found.store = c10::make_intrusive<c10d::HashStore>();
    return found;
  }
  const Number rank = find_number("RANK", "InitOptions::rank", options.rank, 0, kMostRanks - 1);
  const Number world_size = find_number("WORLD_SIZE", "InitOptions::world_size", options.world_size, 1, kMostRanks);
  if (!rank.value || !world_size.value) throw_incomplete(options, rank, world_size);
  if (*rank.value >= *world_size.value)
    throw ArgumentError(fmt::format("{} is {}, but {} is {}; ranks go from 0 to {}", rank.name(), *rank.value,
                                    world_size.name(), *world_size.value, *world_size.value - 1));
  found.rank = *rank.value;
  found.world_size = *world_size.value;
  const bool one_machine = int_variable("LOCAL_WORLD_SIZE", 1, kMostRanks).value_or(0) == found.world_size;
  const auto known = [](bool on_this_machine) { return on_this_machine ? std::optional(true) : std::nullopt; };
  found.loopback = known(one_machine);
  if (options.store) {
    found.store = options.store;
    return found;
  }
  const auto patience = std::min(options.timeout, options.connect_timeout);
  if (options.init_method.starts_with("file://")) {
    found.store = c10::make_intrusive<c10d::FileStore>(options.init_method.substr(7), found.world_size);
    found.store->setTimeout(patience);
    return found;
  }

  std::string host;
  int port = 0;
  bool serves = found.rank == 0;
  if (from_environment) {
    host = protocol::variable("MASTER_ADDR");
    if (host.empty() || protocol::variable("MASTER_PORT").empty())
      throw ArgumentError(fmt::format(
          "RANK and WORLD_SIZE are set, but {} is not; set it to {}", host.empty() ? "MASTER_ADDR" : "MASTER_PORT",
          host.empty() ? "the machine of rank 0 (127.0.0.1 for one machine)" : "a free port of rank 0's machine"));
    port = *int_variable("MASTER_PORT", 1, 65535);
    if (protocol::variable("TORCHELASTIC_USE_AGENT_STORE") == "True") serves = false;  // torchrun's agent serves it
  } else if (options.init_method.starts_with("tcp://")) {
    std::tie(host, port) = split_address(options.init_method.substr(6));
  } else {
    throw ArgumentError(fmt::format("init_method '{}' is unknown; there are env://, file:///path and tcp://host:port",
                                    options.init_method));
  }
  found.loopback = known(one_machine || is_loopback(host));
  found.store = serves ? serve_store(host, port, patience, one_machine) : connect_store(host, port, patience);
  if (const std::string restart = protocol::variable("TORCHELASTIC_RESTART_COUNT"); !restart.empty())
    found.store = c10::make_intrusive<c10d::PrefixStore>("attempt-" + restart, found.store);
  return found;
}

}  // namespace lockstep::dist
