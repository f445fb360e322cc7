// Ends the connections of Gloo's process groups, in a process that has made them itself.
//
// c10d can't end a collective of Gloo: ProcessGroupGloo::abort() does nothing, up to torch 2.15, and neither the group
// nor Gloo gives its sockets out. They are found in the kernel's list of what Gloo's own thread waits for (epoll),
// where each socket has a pointer to Gloo's object for the connection.
#pragma once
#include <cstddef>

namespace lockstep::agent {

/// Shuts down all connections of all Gloo groups of this process. What waits on them in a collective, here and on the
/// other side, gets Gloo's error for a lost connection, and so does each later collective of these groups. Other sockets
/// are left alone, and groups that liblockstep has made. Takes no lock. Returns how many there were.
size_t shut_down_gloo_connections();

}  // namespace lockstep::agent
