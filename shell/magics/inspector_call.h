// What magics that turn into a cell calling inspect:: have in common.
#pragma once
#include <optional>
#include <string>

#include "protocol/rank_set.h"
#include "shell/session_impl.h"

namespace lockstep::shell {

/// As C++ spells it.
std::string quoted(const std::string& text);
/// `lockstep::RankSet{0, 2}`
std::string list_of(const RankSet& ranks);
/// A number that is finite and at least `least`, as C++ spells it. Throws UsageError that names `option`.
std::string number_of(const std::string& word, const char* option, double least, const char* what);
/// The ranks that an inspector runs on: of `spec`, or all that are alive, whatever %rank says. Starts the session if need be.
RankSet ranks_for(Session::Impl& session, const std::optional<std::string>& spec);

}  // namespace lockstep::shell
