// What operators that ask other ranks have in common.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "inspectors/verify/verify.h"
#include "python/operators/attach.h"
#include "python/operators/call.h"
#include "python/operators/findings.h"

namespace lockstep::python {

/// Attaches, and calls `inspector` unless the ranks could not meet.
template <typename Options, typename Inspector>
nlohmann::json inspect_with(const Call& call, inspect::InspectionCall what, const Options& options,
                            Inspector&& inspector) {
  what.object = options.name();
  if (what.type.empty()) what.type = call.arguments.value("type", std::string());
  if (auto failed = attach(call.arguments.at("group"), what, options)) return report_json(*failed);
  return inspector();
}

template <typename T>
void read_option(const nlohmann::json& value, T& option) {
  option = value.get<T>();
}
template <typename T>
void read_option(const nlohmann::json& value, std::optional<T>& option) {
  option = value.is_null() ? std::nullopt : std::optional(value.get<T>());
}
/// Throws ArgumentError for a name that is none.
void read_option(const nlohmann::json& value, inspect::Method& method);

/// Sets the option of a row in inspectors/options/ in `options` to what is in the arguments of `call`.
#define LOCKSTEP_READ_OPTION(type, name, initial, value, range, help) \
  read_option(call.arguments.at(#name), options.name());

/// The options of verify and watch.
inspect::VerifyOptions verify_options(const Call& call);

}  // namespace lockstep::python
