// Serves and connects a TCPStore on one address. c10d's own server listens on every interface of the machine.
#pragma once
#include <chrono>
#include <string>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "collectives/transport/thread_sockets.h"

namespace lockstep::dist {

using TcpStore = c10::intrusive_ptr<c10d::TCPStore>;

/// Whether `host` is "localhost" or an address of the loopback interface.
bool is_loopback(const std::string& host);

/// Holds the store, and is a client of it, too. Listens on the address of `host` only; `port` 0: the kernel chooses one
/// (getPort() returns it). On a loopback address, and with `own_user_only` on any, connections are accepted from
/// processes of this machine and this user only (own_accepts.h): c10d's protocol has no secret. Throws ArgumentError
/// where it can't listen.
TcpStore serve_store(const std::string& host, int port, std::chrono::milliseconds timeout = std::chrono::minutes(5),
                     bool own_user_only = false);

/// Does the same on a socket that listens already; takes it over.
TcpStore serve_store(int listener, std::chrono::milliseconds timeout = std::chrono::minutes(5),
                     bool own_user_only = false);

/// Tries until `timeout` has passed (in whole seconds, at least one), since the store may not be there yet; waits in
/// the store have the same limit. Throws Error when nobody serves one there, and with `own_user_only` when another user
/// does.
TcpStore connect_store(const std::string& host, int port, std::chrono::milliseconds timeout = std::chrono::minutes(5),
                       bool own_user_only = false);

/// Connects to host:port and lets `held` hold the connection, on which nothing is sent. `sockets`, after its
/// connect_once(), ends this and notes why it failed. Throws Error where nobody listens there.
void probe_store(ThreadSockets& sockets, const std::string& host, int port, HeldSockets& held);

}  // namespace lockstep::dist
