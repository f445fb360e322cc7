// Names addresses of this process: functions, and lines of programs that have debug information (-g). libdw reads them.
// It is loaded for that, so that programs of users and wheels need not have it; without it nothing is named.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "collectives/log/collective_record.h"

namespace lockstep::agent {

struct ProgramLine {
  std::string function;  // demangled; empty where it is not known
  std::string file;  // empty without debug information
  int64_t line = 0;
};

/// Returns one for each address, which lies inside of the instruction that is meant. Opens files and allocates.
std::vector<ProgramLine> program_lines(const std::vector<uintptr_t>& addresses);

/// Returns the place of the call that returns there: "/src/train.cpp:88"; empty without debug information.
dist::CallPlace place_of_call(uint64_t return_address);

}  // namespace lockstep::agent
