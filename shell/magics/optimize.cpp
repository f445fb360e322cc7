// %%O1, %%O2, %%O3 and %%debug: how this cell is compiled.
#include "protocol/error.h"
#include "shell/session/session_core.h"

namespace lockstep::shell {
namespace {

Magic optimized(int level) {
  const std::string name = "O" + std::to_string(level);
  const auto cell = [level, name](MagicCall& call, CellSettings& settings) {
    if (!call.arguments.empty()) throw UsageError("%%" + name + " takes nothing: it is for the lines below");
    settings.optimize = level;
  };
  return {.name = name,
          .usage = "%%" + name,
          .summary = "this cell is compiled with -" + name,
          .help = "Cells are compiled with -O0, which is fastest to compile. LibTorch itself is optimised in any case.",
          .line = {},
          .cell = cell};
}

void debug_cell(MagicCall& call, CellSettings& settings) {
  if (!call.arguments.empty()) throw UsageError("%%debug takes nothing: it is for the lines below");
  settings.debug = true;
}

const RegisterMagic kO1(optimized(1));
const RegisterMagic kO2(optimized(2));
const RegisterMagic kO3(optimized(3));

const RegisterMagic kDebug(
    {.name = "debug",
     .usage = "%%debug",
     .summary = "this cell is compiled with full debug information",
     .help = "gdb -p PID (of a rank: %dist_status) then shows locals; `break cell_7.cpp:4` works without it, too.",
     .line = {},
     .cell = debug_cell});

}  // namespace
}  // namespace lockstep::shell
