// Sets how tensors are written: show::options({.precision = 2}), as torch.set_printoptions.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace lockstep {

/// What is not given stays as it is. Options count for the rank that calls it, until they are set again.
struct ShowOptions {
  std::optional<int> precision;  // digits after the point, 4 by default; at most 17
  std::optional<int64_t> threshold;  // elements from which on only the edges are written, 1000 by default
  std::optional<int64_t> edgeitems;  // of each dimension, at both ends, 3 by default
  std::optional<int> linewidth;  // columns, 80 by default
  std::optional<bool> sci_mode;  // 1.0000e+00 always or never; by default where the numbers need it
  std::optional<std::string>
      profile;  // all of the above: "default", "short" (2 digits, 2 edge items), "full" (no limit)
  std::optional<std::string> ranks;  // numbers that differ between ranks: "each" (default), a line for each rank, or
      // "range", one line: 0-7 = 1.21 … 1.34 (spread 0.13, mean 1.27, lowest rank 3, highest rank 5)
};

/// Throws std::invalid_argument for a number that is out of range and for an unknown profile or form of ranks; nothing
/// is set then.
void set_show_options(const ShowOptions& options) __asm__("lockstep_cell_show_options");

}  // namespace lockstep
