// %%O1, %%O2, %%O3 and %%debug: how this cell is compiled.
#include "shell/session/session_core.h"

namespace lockstep::shell {
namespace {

Magic optimized(int level) {
  const std::string name = "O" + std::to_string(level);
  const auto cell = [level](MagicCall&, CellSettings& settings) { settings.optimize = level; };
  return {.name = name,
          .summary = "this cell is compiled with -" + name,
          .help = "Cells are compiled with -O0, which is fastest to compile. LibTorch itself is optimised in any case.",
          .cell = cell};
}

void debug_cell(MagicCall&, CellSettings& settings) { settings.debug = true; }

const RegisterMagic kO1(optimized(1));
const RegisterMagic kO2(optimized(2));
const RegisterMagic kO3(optimized(3));

const RegisterMagic kDebug(
    {.name = "debug",
     .summary = "this cell is compiled with full debug information",
     .help = "gdb -p PID (of a rank: %dist_status) then shows locals; `break cell_7.cpp:4` works without it, too.",
     .cell = debug_cell});

}  // namespace
}  // namespace lockstep::shell
