// The standard input of cells: there is none, and who reads it hears so, rather than to go on with a zero.
#pragma once

namespace lockstep::worker {

/// From now on std::cin throws std::runtime_error when it is read; stdin (scanf, getchar) says so on the standard
/// error, once a cell, and is at its end. Once, at start.
void install_standard_input();
/// The same for std::cin alone, after it has got another buffer.
void install_input_buffer();
/// A cell begins: std::cin is in no state of failure that an earlier one has left.
void reset_standard_input();

}  // namespace lockstep::worker
