// Makes listening sockets take connections of this user only. Neither c10d's store nor Gloo authenticates who connects,
// and any user of the machine reaches a port of the loopback interface.
#pragma once
#include <cstdint>
#include <functional>

namespace lockstep::dist {

/// Lets accept() return, for as long as the socket lives, only connections of this machine whose other end is a socket
/// of this process's user. Others are closed at once, and the caller never sees them. Must be called before the first
/// accept(). Has no effect where the interposer is absent (interposed.h).
void accept_own_user_only(int listener);

/// The hook of accept() calls `take` until it returns a connection that `listener` may have, or fails.
int accept_checked(int listener, const std::function<int()>& take);

/// Returns how many connections were closed so far, in this process.
int64_t refused_connections();

}  // namespace lockstep::dist
