// %%O1, %%O2 and %%O3: how this cell is compiled.
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

const RegisterMagic kO1(optimized(1));
const RegisterMagic kO2(optimized(2));
const RegisterMagic kO3(optimized(3));

}  // namespace
}  // namespace lockstep::shell
