#include "inspectors/memory/memory.h"

#include <nlohmann/json.hpp>

namespace lockstep::inspect {

using nlohmann::json;

namespace {

json optional_json(const std::optional<int64_t>& value) { return value ? json(*value) : json(); }
std::optional<int64_t> optional_number(const json& value) {
  return value.is_null() ? std::nullopt : std::optional(value.get<int64_t>());
}

json device_json(const DeviceMemory& device) {
  return {{"device", device.device},
          {"bus_id", device.bus_id},
          {"allocated", device.allocated},
          {"peak", device.peak},
          {"reserved", device.reserved},
          {"segments", device.segments},
          {"split", optional_json(device.split)},
          {"largest_free", optional_json(device.largest_free)},
          {"retries", device.retries},
          {"failures", device.failures},
          {"used", optional_json(device.used)},
          {"total", optional_json(device.total)},
          {"processes", device.processes}};
}

DeviceMemory device_of(const json& value) {
  DeviceMemory device;
  device.device = value.at("device");
  device.bus_id = value.at("bus_id");
  device.allocated = value.at("allocated");
  device.peak = value.at("peak");
  device.reserved = value.at("reserved");
  device.segments = value.at("segments");
  device.split = optional_number(value.at("split"));
  device.largest_free = optional_number(value.at("largest_free"));
  device.retries = value.at("retries");
  device.failures = value.at("failures");
  device.used = optional_number(value.at("used"));
  device.total = optional_number(value.at("total"));
  value.at("processes").get_to(device.processes);
  return device;
}

}  // namespace

void to_json(json& value, const RankMemory& memory) {
  json tensors = json::array(), watched;
  for (const TensorMemory& each : memory.tensors)
    tensors.push_back({each.name, each.kind, each.device, each.tensors, each.bytes});
  if (memory.watched) {
    json cells = json::array();
    for (const PeriodMemory& each : memory.watched->cells)
      cells.push_back({each.cell, each.allocations, each.allocated, each.peak, each.kept});
    watched = {
        {"cells", cells}, {"steps", memory.watched->steps}, {"growth", optional_json(memory.watched->growth_per_step)}};
  }
  value = {{"rank", memory.rank},
           {"pid", memory.pid},
           {"host", memory.host},
           {"resident", memory.resident},
           {"peak_resident", memory.peak_resident},
           {"heap_used", memory.heap_used},
           {"heap_free", memory.heap_free},
           {"device", memory.device ? device_json(*memory.device) : json()},
           {"tensors", tensors},
           {"watched", watched}};
}

void from_json(const json& value, RankMemory& memory) {
  memory.rank = value.at("rank");
  memory.pid = value.at("pid");
  memory.host = value.at("host");
  memory.resident = value.at("resident");
  memory.peak_resident = value.at("peak_resident");
  memory.heap_used = value.at("heap_used");
  memory.heap_free = value.at("heap_free");
  if (const json& device = value.at("device"); !device.is_null()) memory.device = device_of(device);
  for (const json& each : value.at("tensors"))
    memory.tensors.push_back({each.at(0), each.at(1), each.at(2), each.at(3), each.at(4)});
  if (const json& watched = value.at("watched"); !watched.is_null()) {
    memory.watched.emplace();
    memory.watched->steps = watched.at("steps");
    memory.watched->growth_per_step = optional_number(watched.at("growth"));
    for (const json& each : watched.at("cells"))
      memory.watched->cells.push_back({each.at(0), each.at(1), each.at(2), each.at(3), each.at(4)});
  }
}

}  // namespace lockstep::inspect
