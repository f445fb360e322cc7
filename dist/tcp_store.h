// A TCPStore by its address. c10d's own server listens on every interface of the machine; these listen where they are told.
#pragma once
#include <chrono>
#include <string>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

namespace lockstep::dist {

using TcpStore = c10::intrusive_ptr<c10d::TCPStore>;

/// Holds the store, and is a client of it, too. Listens on the address of `host` only; `port` 0: the kernel chooses one
/// (getPort() tells). Throws ArgumentError where that can't be.
TcpStore serve_store(const std::string& host, int port, std::chrono::milliseconds timeout = std::chrono::minutes(5));

/// The same on a socket that listens already; takes it over.
TcpStore serve_store(int listener, std::chrono::milliseconds timeout = std::chrono::minutes(5));

/// Throws Error when nobody serves one there.
TcpStore connect_store(const std::string& host, int port, std::chrono::milliseconds timeout = std::chrono::minutes(5));

}  // namespace lockstep::dist
