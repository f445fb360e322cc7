#include "worker/process/configuration.h"

#include <fcntl.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "protocol/whole_number.h"

namespace lockstep::worker {
namespace {

/// Reads variables and keeps what is wrong with them.
class Reader {
 public:
  Reader(const char* (*lookup)(const char*), std::vector<std::string>& problems)
      : lookup_(lookup), problems_(problems) {}

  std::optional<std::string> text(const char* name) const {
    const char* value = lookup_(name);
    if (!value || !*value) return std::nullopt;
    return value;
  }

  std::string required(const char* name, const char* what) {
    if (auto value = text(name)) return *value;
    problem(name, std::string("is not set: it names ") + what + ". `lockstep` sets it for the workers that it starts");
    return {};
  }

  int integer(const char* name, int least, int most, int fallback) {
    const auto value = text(name);
    if (!value) return fallback;
    const auto number = protocol::whole_number(*value, least, most);
    if (!number) {
      std::string range = most == std::numeric_limits<int>::max()
                              ? "of at least " + std::to_string(least)
                              : "from " + std::to_string(least) + " to " + std::to_string(most);
      problem(name, "is '" + *value + "': it has to be a whole number " + range);
      return fallback;
    }
    return *number;
  }

  void problem(const char* name, const std::string& sentence) { problems_.push_back(name + (" " + sentence)); }

 private:
  const char* (*lookup_)(const char*);
  std::vector<std::string>& problems_;
};

constexpr int kAny = std::numeric_limits<int>::max();

int cores_of_this_process() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

void read_device(Reader& read, Configuration& c) {
  c.device = read.text("LOCKSTEP_DEVICE").value_or("cpu");
  if (c.device == "cpu") return;
  if (c.device.starts_with("cuda:"))
    if (const auto index = protocol::whole_number<int>(std::string_view(c.device).substr(5), 0)) {
      c.gpu_id = read.integer("LOCKSTEP_GPU_ID", 0, kAny, *index);
      return;
    }
  read.problem("LOCKSTEP_DEVICE", "is '" + c.device + "': it has to be cpu or cuda:N");
  c.device = "cpu";
  c.gpu_id = -1;
}

void read_store(Reader& read, Configuration& c) {
  c.store = read.required("LOCKSTEP_STORE", "the session's store, as 127.0.0.1:PORT");
  if (c.store.empty()) return;
  const auto colon = c.store.rfind(':');
  const bool has_host = colon != std::string::npos && colon > 0;
  if (!has_host || !protocol::whole_number<int>(std::string_view(c.store).substr(colon + 1), 1, 65535))
    read.problem("LOCKSTEP_STORE", "is '" + c.store + "': it has to be HOST:PORT");
  c.store_key = read.required("LOCKSTEP_STORE_KEY", "what the session's keys in the store begin with");
}

void read_arguments(Reader& read, Configuration& c) {
  const auto text = read.text("LOCKSTEP_ARGUMENTS");
  if (!text) return;
  const auto json = nlohmann::json::parse(*text, nullptr, false);
  if (!json.is_object()) {
    read.problem("LOCKSTEP_ARGUMENTS", "is no JSON object of strings");
    return;
  }
  for (const auto& [name, value] : json.items())
    c.arguments[name] = value.is_string() ? value.get<std::string>() : value.dump();
}

}  // namespace

Configuration read_configuration(const char* (*lookup)(const char*)) {
  Configuration c;
  Reader read(lookup, c.problems);
  c.world_size = read.integer("LOCKSTEP_WORLD_SIZE", 1, kAny, 1);
  c.rank = read.integer("LOCKSTEP_RANK", 0, c.world_size - 1, 0);
  c.local_world_size = read.integer("LOCKSTEP_LOCAL_WORLD_SIZE", 1, c.world_size, c.world_size);
  c.local_rank = read.integer("LOCKSTEP_LOCAL_RANK", 0, c.local_world_size - 1, c.rank % c.local_world_size);
  c.node_rank = read.integer("LOCKSTEP_NODE_RANK", 0, kAny, 0);
  c.session_dir = read.required("LOCKSTEP_SESSION_DIR", "the session's private folder");
  c.hub = read.required("LOCKSTEP_HUB", "the socket of the session's hub");
  if (!c.hub.empty() && c.hub.find("://") == std::string::npos)
    read.problem("LOCKSTEP_HUB", "is '" + c.hub + "': it has to be an endpoint such as ipc:///path or tcp://HOST:PORT");
  c.identity = read.required("LOCKSTEP_IDENTITY", "the name by which the hub knows this rank");
  read_store(read, c);
  c.backend = read.text("LOCKSTEP_BACKEND").value_or("gloo");
  constexpr std::array kBackends = {"auto", "gloo", "shared_memory", "nccl", "cpu:gloo,cuda:nccl"};
  if (std::ranges::find(kBackends, c.backend) == kBackends.end())
    read.problem("LOCKSTEP_BACKEND",
                 "is '" + c.backend + "': it has to be auto, gloo, shared_memory, nccl or cpu:gloo,cuda:nccl");
  read_device(read, c);
  c.threads = read.integer("LOCKSTEP_THREADS", 1, 4096, std::max(1, cores_of_this_process() / c.local_world_size));
  c.replay = read.text("LOCKSTEP_REPLAY").value_or("");
  c.generation = read.integer("LOCKSTEP_GENERATION", 0, kAny, 0);
  c.check_collectives = read.integer("LOCKSTEP_CHECK_COLLECTIVES", 0, 1, 1) == 1;
  c.lifeline_fd = read.integer("LOCKSTEP_LIFELINE_FD", 0, kAny, -1);
  if (c.lifeline_fd >= 0 && ::fcntl(c.lifeline_fd, F_GETFD) < 0) {
    read.problem("LOCKSTEP_LIFELINE_FD", "is " + std::to_string(c.lifeline_fd) + ", which is no open descriptor");
    c.lifeline_fd = -1;
  }
  if (const auto text = read.text("LOCKSTEP_OUTPUT_FDS"))
    if (c.output = protocol::parse_output_channels(*text); !c.output)
      read.problem("LOCKSTEP_OUTPUT_FDS", "is '" + *text + "', which does not name six open descriptors");
  read_arguments(read, c);
  return c;
}

void restore_library_path() {
  const char* of_user = std::getenv("LOCKSTEP_USER_LIBRARY_PATH");
  if (!of_user) return;
  if (*of_user)
    ::setenv("LD_LIBRARY_PATH", of_user, 1);
  else
    ::unsetenv("LD_LIBRARY_PATH");
  ::unsetenv("LOCKSTEP_USER_LIBRARY_PATH");
}

const Configuration& configuration() {
  static const Configuration kept =
      read_configuration([](const char* name) -> const char* { return std::getenv(name); });
  return kept;
}

}  // namespace lockstep::worker
