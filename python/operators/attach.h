// Attaches the inspectors of a Python job to each other: the ranks of torch.distributed's default group meet in its
// store, and make connections of their own. The program's groups are not used.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "inspectors/exchange/inspection.h"

namespace lockstep::python {

/// Every operator that asks other ranks calls it before. `group` is the name of the default group in c10d's registry;
/// null where torch.distributed is not initialised, so that this process is rank 0 of one.
///
/// Collective over all ranks of the group, until it has succeeded once; local from then on. If a rank does not call
/// within the deadline, or calls something else, the report that says so is returned, and nothing is attached.
std::optional<inspect::Report> attach(const nlohmann::json& group, const inspect::InspectionCall& call,
                                      const inspect::InspectOptions& options);

/// Ends the connections, for a program that destroys its process groups. Local. `generation` above 0: a lost rank has
/// been replaced by a process that has attached to nothing, and all ranks attach under that number from then on.
void detach(int64_t generation = 0);

/// Counts from here on collectives that this process has begun on the groups with these names, by c10d's own numbers
/// (inspectors/trace/step_reductions.h).
void count_collectives_of(const std::vector<std::string>& groups);

}  // namespace lockstep::python
