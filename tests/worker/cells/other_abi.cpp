// A cell of a compiler of another version.
#include "protocol/cell_abi.h"

extern "C" const lockstep_cell_entry cell_other_abi;
const lockstep_cell_entry cell_other_abi = {lockstep::kCellAbi + 1, 0, nullptr};
