// What operators that ask other ranks have in common.
#pragma once
#include <nlohmann/json.hpp>
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

/// The options of verify and watch, whose "method" has a name. Throws ArgumentError.
inspect::VerifyOptions verify_options(const nlohmann::json& arguments);

}  // namespace lockstep::python
