// Gives cells no standard input: reading it is an error, so that no cell goes on with a zero.
#pragma once

namespace lockstep::worker {

/// Lets std::cin throw std::runtime_error when it is read; stdin (scanf, getchar) says so on the standard error, once a
/// cell, and is at its end. Called once, at start.
void install_standard_input();
/// Does the same for std::cin alone, after it has got another buffer.
void install_input_buffer();
/// Clears a failure of std::cin that an earlier cell has left. Called when a cell begins.
void reset_standard_input();

}  // namespace lockstep::worker
