// The way of a shown value to the hub, from whatever thread shows it.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

namespace lockstep::worker {

class Outbox;

/// Values go there from now on. Once, at start.
void send_values_to(Outbox& outbox);

/// A value of the running cell. Output written before it is sent before it.
void post_value(std::string text, nlohmann::json data);

}  // namespace lockstep::worker
