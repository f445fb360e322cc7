// Operators that watch a program, on its own thread, until Python closes them. Each returns {"watch": its number}.
#pragma once
#include <nlohmann/json.hpp>

#include "python/operators/call.h"

namespace lockstep::python {

/// Compares an object every so many steps. Collective, as verify.
nlohmann::json watch(const Call& call);
/// The next two are local, but that nan_watch attaches the ranks (attach.h).
nlohmann::json watch_grads(const Call& call);
nlohmann::json nan_watch(const Call& call);
/// Returns what an open one has seen. Throws std::out_of_range for a number that is none.
nlohmann::json nan_status(const Call& call);
nlohmann::json watch_cost(const Call& call);
nlohmann::json record_operators(const Call& call);
nlohmann::json watch_memory(const Call& call);
/// Does nothing when it is called again.
nlohmann::json close_watch(const Call& call);

/// Returns what watches have found, on this thread, in the steps counted since the last call: [{"watch", "finding"}].
nlohmann::json take_found_by_watches();

}  // namespace lockstep::python
