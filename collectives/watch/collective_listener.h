// Calls a function before each collective of a thread; an inspector reads parameters there. A thread has one listener.
#pragma once
#include <functional>

namespace lockstep::dist {

/// Calls `listener` on this thread before each collective that it calls on a group of dist, before that is logged or
/// anything is sent. An empty function removes the listener. What it throws, the collective throws.
void set_collective_listener(std::function<void()> listener);
/// The watched backend calls it.
void call_collective_listener();

}  // namespace lockstep::dist
