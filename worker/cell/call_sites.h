// Tells the inspectors where in a cell something was called.
#pragma once

namespace lockstep::worker {

/// Once, before cells run.
void install_call_sites();

}  // namespace lockstep::worker
