// Makes findings and values for Jupyter: the same content as text, as HTML and as JSON.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "protocol/finding.h"
#include "shell/events/event.h"

namespace lockstep::shell::jupyter {

/// JSON forms, which frontends do not draw and programs may read. Formats: docs/events.md.
inline constexpr const char* kFindingMime = "application/vnd.lockstep.finding+json";
inline constexpr const char* kInspectionMime = "application/vnd.lockstep.inspection+json";
inline constexpr const char* kValueMime = "application/vnd.lockstep.value+json";

/// Sentences are broken here. Frontends break text that is wider than the page in the middle of words; JupyterLab has
/// some 100 columns in a window of 1,280 pixels with its side bar open.
inline constexpr int kPageColumns = 80;

/// Returns text/plain as in a terminal, text/html with a table of the tensors, and kFindingMime.
nlohmann::json finding_data(const Finding& finding);

/// Returns values that ranks show at the same time. text/plain has the value alone where all ranks of the session
/// (`all`) have it, else a line for each set of ranks. For show::plot it is chart_data().
nlohmann::json value_data(const std::vector<ValueEvent>& values, const RankSet& all);

/// Returns what a value of Python shows beside its text: HTML, a picture; null where it has no such form.
nlohmann::json rich_data(const ValueEvent& value);

/// Returns the chart of show::plot or of a report, one for all ranks, as Vega-Lite, SVG, text and JSON; null where a
/// value has none. A report is shown by its table, too, which frontends would leave out of a bundle with a picture.
nlohmann::json chart_data(const std::vector<ValueEvent>& values, const RankSet& all);

}  // namespace lockstep::shell::jupyter
