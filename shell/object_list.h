// The objects that cells have defined, as arguments of an inspector: how a magic tells it which modules there are and what
// they are called.
#pragma once
#include <string>

#include "protocol/rank_set.h"
#include "shell/session_impl.h"

namespace lockstep::shell {

/// `TYPE().add("net", net).add("optimizer", optimizer)`: every variable that all of `ranks` see and that may be a module, an
/// optimizer or a tensor; `type` (inspect::NameList, inspect::StateList) leaves out what is none.
std::string object_list(Session::Impl& session, const RankSet& ranks, const std::string& type);

/// `lockstep::RankSet{0, 1}`.
std::string rank_set_code(const RankSet& ranks);

}  // namespace lockstep::shell
