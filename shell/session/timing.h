// Reports how long a cell took on each rank, with the spread, for %time and %%time.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "shell/session/session_core.h"

namespace lockstep::shell {

/// Returns "850 µs", "1.23 s": three digits and the unit that suits.
std::string duration_text(double ms);

struct TimeReport {
  std::string text;                            // for people, several lines
  nlohmann::json data;                         // {"compile_ms","run_ms":{rank: ms},"min_ms","max_ms","spread_ms"}
};

TimeReport time_report(const CodeResult& result);

/// Runs `body`, as a block, as often as `settings.timeit` says or as a measurement needs, equally often on all ranks,
/// and prints its time. `line` is that of the %%timeit, where the block's brace goes.
void timeit(SessionCore& session, const std::string& body, const CellSettings& settings, int line);

}  // namespace lockstep::shell
