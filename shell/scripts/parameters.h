// Sets parameters of a script: `--arg NAME=VALUE` sets variable NAME of a cell tagged `parameters`, as papermill does.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "shell/scripts/script.h"

namespace lockstep::shell {

/// Adds after each cell tagged `parameters` a cell tagged `injected-parameters` that assigns those arguments which the
/// cell declares: `epochs = arg("epochs", epochs);`. Cells that an earlier run injected are left out. Without arguments
/// for it, a cell gets none.
std::vector<ScriptCell> with_parameters(std::vector<ScriptCell> cells,
                                        const std::map<std::string, std::string>& arguments,
                                        Language language = Language::cpp);

bool has_tag(const ScriptCell& cell, const std::string& name);

}  // namespace lockstep::shell
