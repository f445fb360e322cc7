// Writes the native frames of a crash to stderr, before faulthandler writes the Python ones: those of the functions that
// Python has called, down to the one that has crashed.
#pragma once

namespace lockstep::agent {

/// Puts a handler in front of those that the signals of crashes have. Once in a process; a child of it has the handlers
/// that were there before.
void write_frames_of_crashes();

}  // namespace lockstep::agent
