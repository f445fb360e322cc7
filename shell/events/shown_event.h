// Makes events as people see them. Names of tensors, texts of exceptions, titles of cells and names of files come from
// files that others may have written, and a terminal would obey the control characters in them.
#pragma once
#include "shell/events/event.h"

namespace lockstep::shell {

/// Returns `event` without control characters in its texts (without_controls). Output of ranks is as they wrote it;
/// values keep their colours.
Event shown(Event event);
Finding shown(Finding finding);

}  // namespace lockstep::shell
