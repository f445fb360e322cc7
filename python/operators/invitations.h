// Shells that ask this rank to serve their prompt, and where the rank has stopped. The handler runs on the agent's
// thread and takes no lock of the interpreter: a rank that is stuck anywhere can be invited.
#pragma once
#include <nlohmann/json.hpp>

namespace lockstep::python {

/// Registers the agent's handler "serve", once. Its request has "hub" (the path of the shell's socket) and "identity":
/// the rank connects at once if it has stopped, and else at its next stop. The newest invitation counts. The answer has
/// "stopped": the place where the rank is, or null. Returns {"event": a descriptor that can be read when there is an
/// invitation}.
nlohmann::json expect_invitations();

/// `place`: where the rank has stopped; null: it goes on.
void set_stopped(const nlohmann::json& place);

/// The program has counted its step `step`. Returns whether the rank is to stop there: a shell has asked for it by the
/// agent's request "stop_at", {"step": N}. Ranks that stop at the same step have called the same collectives. The answer
/// has "step", the last one that was counted (null: the program counts none), and "late": N has passed, and nothing
/// happens. Without "step" a request that waits is taken back.
bool stops_at(int64_t step);

/// Takes the invitation: {"hub", "identity"}, or {} where there is none.
nlohmann::json take_invitation();

}  // namespace lockstep::python
