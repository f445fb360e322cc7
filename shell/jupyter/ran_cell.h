// Runs one cell of a request: the session runs it, the display draws it, and this says what came of it.
#pragma once
#include <string>

#include "shell/jupyter/display.h"
#include "shell/session/session.h"

namespace lockstep::shell::jupyter {

struct RanCell {
  bool failed = false;
  bool leaves = false;  // the cell asks for the end of the session
  Display::Report report;  // a cell that failed has a name, a value and a traceback of its error
};

/// Names the error of a cell that failed with `status` where the report has no name.
void name_error(Display::Report& report, CellStatus status);

/// Runs `code`, drawn as `wishes` has it. Numbers of cells are those that the notebook shows. Never throws: a session that
/// can't start is an error of the cell.
RanCell run_cell(Session& session, Display& display, const std::string& code, const Display::Wishes& wishes);

/// Whether it is `net?`, `%verify?` or `%help`: the answer is for the pager.
bool asks_for_help(std::string_view code);

}  // namespace lockstep::shell::jupyter
