// Operators that watch a program until Python closes them: each returns {"watch": its number}. On the program's own thread.
#pragma once
#include <nlohmann/json.hpp>

#include "python/operators/call.h"

namespace lockstep::python {

/// Compares an object every so many steps. Collective, as verify.
nlohmann::json watch(const Call& call);
/// The next two are local, but that nan_watch attaches the ranks (attach.h).
nlohmann::json watch_grads(const Call& call);
nlohmann::json nan_watch(const Call& call);
/// What an open one has seen. Throws std::out_of_range for a number that is none.
nlohmann::json nan_status(const Call& call);
nlohmann::json watch_cost(const Call& call);
nlohmann::json record_operators(const Call& call);
nlohmann::json watch_memory(const Call& call);
/// Again: does nothing.
nlohmann::json close_watch(const Call& call);

/// What watches have found, on this thread, in the steps that were counted since the last call: [{"watch", "finding"}].
nlohmann::json take_found_by_watches();

}  // namespace lockstep::python
