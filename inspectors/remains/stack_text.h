// Reads stacks and tracebacks in the text of a log: what Python or C++ prints for an exception that nobody catches,
// what faulthandler prints (signals, dump_traceback, time-outs), and the output of `py-spy dump`. Lines may begin with
// the names that torchrun and torch put before them: "[rank3]: ", "[default3]:".
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "inspectors/remains/remains.h"

namespace lockstep::inspect {

/// Adds what is found to `into`; returns whether something was. `rank` is that of lines that name none. Of exceptions
/// that were raised while another one was handled, the last counts.
bool read_stack_text(std::string_view text, const std::string& origin, std::optional<int> rank, Remains& into);

/// Returns the frames of a traceback ("Traceback (most recent call last):"), innermost first; empty if it is none.
std::vector<EvidenceFrame> traceback_frames(std::string_view text);

/// Returns the number that torch has put before the first of its lines, "[rank3]:", which is that among all ranks.
std::optional<int> rank_of_torch_in(std::string_view text);

}  // namespace lockstep::inspect
