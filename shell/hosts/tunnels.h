// Connections of local sockets that go on through a channel to another machine: bytes of each are sent in pieces under its
// number, so that none waits behind a long message of another. Both ends of the channel have one of these.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "protocol/descriptor.h"
#include "shell/processes/event_loop.h"

namespace lockstep::shell {

class Tunnels {
 public:
  /// `send` takes bytes of a connection to the other end; none: the connection has ended.
  Tunnels(EventLoop& loop, std::function<void(int64_t number, std::string bytes)> send);
  ~Tunnels();
  Tunnels(const Tunnels&) = delete;
  Tunnels& operator=(const Tunnels&) = delete;

  /// The connection `number` goes through `socket` here.
  void open(int64_t number, Descriptor socket);
  bool has(int64_t number) const { return open_.contains(number); }
  /// Takes what the other end has sent; none: its connection has ended.
  void deliver(int64_t number, std::string_view bytes);

 private:
  struct Connection {
    Descriptor socket;
    std::string out;
    bool ends = false;  // when `out` is written
  };
  void read(int64_t number);
  void write(int64_t number);
  void close(int64_t number);

  EventLoop& loop_;
  const std::function<void(int64_t, std::string)> send_;
  std::map<int64_t, Connection> open_;
};

}  // namespace lockstep::shell
