// A run that is recorded, to be compared with another one.
#pragma once
#include <cstdint>
#include <string>

namespace lockstep::inspect::compare {

struct RecordedRun {
  std::string folder;
  int64_t steps = 2;  // after which the recording ends
  bool has_values = false;  // of a reference
  int64_t noise = 0;  // the number of a perturbed run, from 1; 0: nothing is perturbed
  /// The folder with the replacements of its values (inspectors/compare/replacements.h); empty: they stay as they are.
  std::string replacements = "";
};

}  // namespace lockstep::inspect::compare
