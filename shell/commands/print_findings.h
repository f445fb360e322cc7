// Prints findings of a command that has no session on standard output.
#pragma once
#include <functional>
#include <nlohmann/json.hpp>
#include <vector>

#include "protocol/finding.h"

namespace lockstep::shell {

bool has_fault(const std::vector<Finding>& findings);

/// Prints them as sessions do.
void print_findings(const std::vector<Finding>& findings);

/// Prints a line of JSON.
void print_event(const nlohmann::json& event);

/// Prints JSON lines: `files`, an event for each finding, `end` with the exit code. `complete` may add fields to one.
void print_findings_as_json(const nlohmann::json& files, const std::vector<Finding>& findings, int exit_code,
                            const std::function<void(nlohmann::json& event, const Finding& finding)>& complete = {});

}  // namespace lockstep::shell
