// Who wants to know that a collective is about to begin: an inspector that looks at parameters there. One listener a thread.
#pragma once
#include <functional>

namespace lockstep::dist {

/// Calls `listener` on this thread before each collective that it calls on a group of dist, before that is logged or anything is
/// sent. An empty function ends it. What it throws leaves the collective's call.
void set_collective_listener(std::function<void()> listener);
/// By the backend.
void tell_collective_listener();

}  // namespace lockstep::dist
