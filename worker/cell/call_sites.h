// Tells the inspectors, and the log of collectives, where in a cell something was called.
#pragma once

namespace lockstep::worker {

/// Tells both. Called once, before cells run.
void install_call_sites();
/// Tells the inspectors alone: the log of a Python job has call sites of its own.
void name_cells_in_findings();

}  // namespace lockstep::worker
