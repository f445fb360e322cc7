#include "inspectors/memory/facts.h"

#include <nlohmann/json.hpp>

namespace lockstep::inspect {

using nlohmann::json;

namespace {

json optional_json(const std::optional<int64_t>& value) { return value ? json(*value) : json(); }
std::optional<int64_t> optional_number(const json& value) {
  return value.is_null() ? std::nullopt : std::optional(value.get<int64_t>());
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
           {"resident", memory.resident},
           {"peak_resident", memory.peak_resident},
           {"heap_used", memory.heap_used},
           {"heap_free", memory.heap_free},
           {"device",
            {optional_json(memory.device_allocated), optional_json(memory.device_reserved),
             optional_json(memory.device_peak)}},
           {"tensors", tensors},
           {"watched", watched}};
}

void from_json(const json& value, RankMemory& memory) {
  memory.rank = value.at("rank");
  memory.resident = value.at("resident");
  memory.peak_resident = value.at("peak_resident");
  memory.heap_used = value.at("heap_used");
  memory.heap_free = value.at("heap_free");
  memory.device_allocated = optional_number(value.at("device").at(0));
  memory.device_reserved = optional_number(value.at("device").at(1));
  memory.device_peak = optional_number(value.at("device").at(2));
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
