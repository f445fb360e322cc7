// Reads from the collective logs what the ranks of a cell do. A display may ask often, since no rank notices.
#pragma once
#include <vector>

#include "shell/cells/cell_run.h"
#include "shell/cells/hang_pictures.h"
#include "shell/events/event.h"

namespace lockstep::shell {

/// Ranks that do the same are one part; parts are in the order of their first ranks.
std::vector<ActivityEvent::Part> rank_activity(const CellRun& run, const HangPictures& pictures);

}  // namespace lockstep::shell
