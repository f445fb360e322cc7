// A request to the runner of cells.
#pragma once
#include <cstdint>
#include <string>

#include "protocol/rank_set.h"

namespace lockstep::shell {

/// Holds C++ to run as (a part of) a cell.
struct CellRequest {
  std::string text;  // lines blanked where magics stood
  RankSet ranks;
  int64_t number = 0;  // the user's number of the cell
  std::string title;
  int optimize = 0;
  bool debug = false;
  std::string directory;
  std::string whole_text;  // of the cell, for debuggers; empty: the text
  int repeat = 1;  // how often the object runs (%%timeit asks for more as it goes: see again())
};

}  // namespace lockstep::shell
