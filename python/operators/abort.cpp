#include "python/operators/agent_handlers.h"

#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <torch/csrc/distributed/c10d/FlightRecorder.hpp>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "python/agent/agent.h"
#include "python/agent/gloo_connections.h"

namespace lockstep::python {
namespace {

using nlohmann::json;

/// c10d's registry can't be listed: groups that have called a collective are in the recorder, and c10d.new_group counts.
std::set<std::string> names_of_groups() {
  constexpr int kMostCounted = 256;
  std::set<std::string> names;
  for (int i = 0; i < kMostCounted; ++i) names.insert(std::to_string(i));
  const json dump = json::parse(c10d::dump_fr_trace_json(/*includeCollectives=*/false, /*onlyActive=*/false), nullptr,
                                /*allow_exceptions=*/false);
  if (!dump.is_object()) return names;
  const json recorded = dump.value("pg_status", json::object());
  for (const auto& [name, status] : recorded.items()) names.insert(name);
  return names;
}

c10::intrusive_ptr<c10d::ProcessGroup> find_group(const std::string& name) {
  try {
    return c10d::resolve_process_group(name);
  } catch (const std::exception&) {  // there is none of that name
    return nullptr;
  }
}

json abort_connections(const json&) { return {{"connections", agent::shut_down_gloo_connections()}}; }

json abort_groups(const json&) {
  json groups = json::array(), problems = json::array();
  for (const std::string& name : names_of_groups()) {
    const auto group = find_group(name);
    if (!group) continue;
    for (const c10::Device& device : group->getDeviceTypes()) {
      try {
        const auto backend = group->getBackend(device.type());
        if (backend->getBackendName() == "gloo") continue;  // its abort() does nothing
        backend->abort();
        groups.push_back(name + " (" + backend->getBackendName() + ")");
      } catch (const std::exception& error) {
        problems.push_back("group " + name + ": " + error.what());
      }
    }
  }
  return {{"groups", groups}, {"problems", problems}};
}

}  // namespace

void expect_aborts() {
  static std::once_flag once;
  std::call_once(once, [] {
    agent::add_handler("abort", abort_connections);
    agent::add_handler("abort_groups", abort_groups, agent::Runs::aside);
  });
}

}  // namespace lockstep::python
