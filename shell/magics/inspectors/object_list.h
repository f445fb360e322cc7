// Lists the objects that cells have defined, as arguments of an inspector: a magic tells it which modules there are and
// what they are called.
#pragma once
#include <string>
#include <vector>

#include "protocol/rank_set.h"
#include "shell/session/session_core.h"

namespace lockstep::shell {

/// Returns every variable that all of `ranks` see and that may be a module, an optimizer or a tensor.
std::vector<std::string> object_names(SessionCore& session, const RankSet& ranks);

/// Returns them as `TYPE().add("net", net).add("optimizer", optimizer)`; `type` (inspect::NameList, inspect::StateList)
/// leaves out what is none of these.
std::string object_list(SessionCore& session, const RankSet& ranks, const std::string& type);

}  // namespace lockstep::shell
