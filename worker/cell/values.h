// Sends shown values and progress to the hub, from whatever thread they come.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "protocol/worker_messages.h"

namespace lockstep::worker {

/// Sends a value of the running cell, whose number it gets. Output written before it is sent before it.
void post_value(protocol::Value value);
/// Sends progress of a loop. It replaces what has not been sent yet of the same loop. The end of a loop comes after the
/// output that was written before it.
void post_progress(protocol::Progress progress);

/// Lets values of the running cell be shown in full from here on: %page.
void show_in_full() __asm__("lockstep_cell_show_in_full");
bool shows_in_full();

}  // namespace lockstep::worker
