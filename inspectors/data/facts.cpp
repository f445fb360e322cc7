#include "inspectors/data/shares.h"

#include <nlohmann/json.hpp>

namespace lockstep::inspect {
namespace {

nlohmann::json optional(const std::optional<int64_t>& value) {
  return value ? nlohmann::json(*value) : nlohmann::json();
}
std::optional<int64_t> optional(const nlohmann::json& value) {
  return value.is_null() ? std::nullopt : std::optional(value.get<int64_t>());
}

}  // namespace

void to_json(nlohmann::json& json, const DataFacts& facts) {
  json = {{"repeated_epoch", optional(facts.repeated_epoch)},
          {"repeats_last_call", facts.repeats_last_call},
          {"has_batches", facts.has_batches},
          {"size", optional(facts.size)},
          {"batch_size", optional(facts.batch_size)},
          {"epoch", optional(facts.epoch)},
          {"reported_epoch", optional(facts.reported_epoch)},
          {"join", facts.join},
          {"worker_seed", optional(facts.worker_seed)}};
}

void from_json(const nlohmann::json& json, DataFacts& facts) {
  facts.repeated_epoch = optional(json.at("repeated_epoch"));
  facts.repeats_last_call = json.at("repeats_last_call");
  facts.has_batches = json.at("has_batches");
  facts.size = optional(json.at("size"));
  facts.batch_size = optional(json.at("batch_size"));
  facts.epoch = optional(json.at("epoch"));
  facts.reported_epoch = optional(json.at("reported_epoch"));
  facts.join = json.at("join");
  facts.worker_seed = optional(json.at("worker_seed"));
}

}  // namespace lockstep::inspect
