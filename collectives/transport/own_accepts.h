// Listening sockets that take connections of this user only. Neither c10d's store nor Gloo authenticates who connects, and any
// user of the machine reaches a port of the loopback interface.
#pragma once
#include <cstdint>

namespace lockstep::dist {

/// From now on accept() gives out connections of this machine whose other end is a socket of this process's user; others are
/// closed at once, and the caller never sees them. For as long as the socket lives. To be
/// called before anyone calls accept().
void accept_own_user_only(int listener);

/// How many connections were closed so far, in this process.
int64_t refused_connections();

}  // namespace lockstep::dist
