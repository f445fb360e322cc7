// Makes rows of a terminal that show what is going on: loops over progress(), and what takes long.
#pragma once
#include <string>
#include <vector>

#include "shell/events/event.h"
#include "shell/text/screen.h"

namespace lockstep::shell {

/// Returns `0:07`, `12:34`, `1:02:03`.
std::string clock_text(double seconds);

/// Returns `epoch 1  62% 620/1000 [0:12<0:08, 51.2 it/s]  slowest rank 3: 598, fastest rank 0: 641`, without the ranks
/// where they are level. Numbers are means over the ranks; the time that remains is that of the slowest. `since_s` is
/// how old the event is.
std::string progress_text(const ProgressEvent& event, double since_s, const Screen& screen);

/// Returns a row for what the session is at, and one for each part; all of it in one row where `in_one_row`. None where
/// it is over. Not cut to the width of the screen.
std::vector<std::string> activity_rows(const ActivityEvent& event, const Screen& screen, bool in_one_row);

}  // namespace lockstep::shell
