# The variables of the environment that a source of the tree names, as C++ for `lockstep doctor`, which calls others
# meaningless. The list of the sources is in known_variables.cpp.sources.
#
#   cmake -DOUTPUT=known_variables.cpp -P KnownVariables.cmake
file(READ ${OUTPUT}.sources sources)
set(names "")
foreach(source IN LISTS sources)
  file(STRINGS ${source} lines REGEX "\"LOCKSTEP_[A-Z_]*[A-Z]\"")
  string(REGEX MATCHALL "\"LOCKSTEP_[A-Z_]*[A-Z]\"" found "${lines}")
  list(APPEND names ${found})
endforeach()
list(REMOVE_DUPLICATES names)
list(SORT names)
list(JOIN names ",\n          " names)
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT [[
#include "shell/commands/doctor.h"

namespace lockstep::shell {
std::vector<std::string> known_variables() {
  return {@names@};
}
}  // namespace lockstep::shell
]] @ONLY)
