// Draws a chart for notebooks: a specification of Vega-Lite with its data, and SVG for what has no Vega-Lite.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "protocol/chart.h"

namespace lockstep::shell {

/// JupyterLab 4 draws Vega-Lite 5 by itself. It shows version 6 as text (tests/shell/jupyter has the test).
inline constexpr const char* kVegaLiteMime = "application/vnd.vegalite.v5+json";

/// Colours can be seen on light and on dark pages.
nlohmann::json chart_vega_lite(const Chart& chart);
std::string chart_svg(const Chart& chart);

}  // namespace lockstep::shell
