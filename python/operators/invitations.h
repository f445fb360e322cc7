// Takes invitations of shells to serve their prompt, and knows where the rank has stopped. The handler runs on the
// agent's thread and takes no lock of the interpreter: a rank that is stuck anywhere can be invited.
#pragma once
#include <nlohmann/json.hpp>

namespace lockstep::python {

/// Registers the agent's handlers, once: "serve", "take_back", "detach", and "stop_at" (stops_at). "serve": its request
/// has "hub" (the path of the shell's socket) and "identity": the rank connects at once if it has stopped, and else at
/// its next stop. The newest invitation counts. The answer has "stopped": the place where the rank is, or null.
/// "take_back" with "hub": an invitation of that shell is void. "detach": breakpoints do nothing from then on. Returns
/// {"event": a descriptor that can be read when there is something new}.
nlohmann::json expect_invitations();

/// `place` is where the rank has stopped; null: it goes on.
void set_stopped(const nlohmann::json& place);

/// Reports to shells that watch the rank, which has stopped: `is_served` by a shell, or waits for one, for `limit_s`
/// seconds at most (null: without limit).
void report_stop(bool is_served, const nlohmann::json& limit_s);

/// The program has counted its step `step`. Returns whether the rank is to stop there: a shell has asked for it by the
/// agent's request "stop_at", {"step": N}. Ranks that stop at the same step have called the same collectives. The answer
/// has "step", the last one that was counted (null: the program counts none), "late": N has passed, and nothing
/// happens, and "stopped": the place where the rank is (empty while it comes to its stop), or null. Without "step" a
/// request that waits is taken back.
bool stops_at(int64_t step);

/// Returns the last step that the program has counted, on any of its threads; 0: none.
int64_t last_step();

/// Takes the invitation: {"invitation": {"hub", "identity"} or null, "detached": whether breakpoints do nothing}.
nlohmann::json take_invitation();

}  // namespace lockstep::python
