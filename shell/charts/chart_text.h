// Draws a chart in text: lines in Braille dots, bars in blocks, and plain ASCII where the screen has nothing else.
#pragma once
#include <string>

#include "protocol/chart.h"
#include "shell/text/screen.h"

namespace lockstep::shell {

/// Returns title, chart, axes and legend, each line with its end. `columns` is the largest width (at least 20).
std::string chart_text(const Chart& chart, const Screen& screen, int columns = 72);

}  // namespace lockstep::shell
