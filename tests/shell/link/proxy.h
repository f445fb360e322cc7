// A cable between a client and a port of this machine: it can be cut, held, and remembers what the client has sent.
#pragma once
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <list>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "protocol/descriptor.h"

namespace lockstep::testing {

inline sockaddr_in ipv4(const std::string& address, int port) {
  sockaddr_in result{};
  result.sin_family = AF_INET;
  result.sin_port = htons(static_cast<uint16_t>(port));
  inet_pton(AF_INET, address.c_str(), &result.sin_addr);
  return result;
}

/// A plain connection to a port of 127.0.0.1 that comes from `from`, which is another address of this machine.
inline Descriptor connect_from(const std::string& from, int port) {
  Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in own = ipv4(from, 0), other = ipv4("127.0.0.1", port);
  EXPECT_EQ(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&own), sizeof own), 0);
  EXPECT_EQ(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&other), sizeof other), 0);
  return socket;
}

class Proxy {
 public:
  explicit Proxy(int port) : target_(port), listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = ipv4("127.0.0.1", 0);
    socklen_t size = sizeof address;
    EXPECT_EQ(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(listener_.get(), 16), 0);
    ::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  ~Proxy() {
    change([this] { ends_ = true; });
    thread_.join();
  }
  Proxy(const Proxy&) = delete;
  Proxy& operator=(const Proxy&) = delete;

  int port() const { return port_; }
  /// Ends every connection after it has carried so many bytes more; 0: none.
  void cut_every(size_t bytes) {
    change([&] { cut_every_ = bytes; });
  }
  void cut() {
    change([this] { cuts_ = true; });
  }
  /// Carries nothing, ends nothing.
  void hold(bool holds) {
    change([&] { holds_ = holds; });
  }
  int connections() {
    const std::lock_guard lock(mutex_);
    return connections_;
  }
  /// What clients have sent on all connections so far.
  std::string sent_by_clients() {
    const std::lock_guard lock(mutex_);
    return sent_;
  }

 private:
  struct Connection {
    Descriptor client, server;
    size_t carried = 0;
    bool has_ended = false;
  };

  template <typename Change>
  void change(const Change& change) {
    const std::lock_guard lock(mutex_);
    change();
    set_event(changed_.get());
  }

  void serve() {
    while (true) {
      std::vector<pollfd> polled = {{changed_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
      {
        const std::lock_guard lock(mutex_);
        if (ends_) return;
        if (cuts_) open_.clear();
        cuts_ = false;
        for (const Connection& each : open_)
          for (const Descriptor* end : {&each.client, &each.server})
            polled.push_back({holds_ ? -1 : end->get(), POLLIN, 0});
      }
      poll_until(polled);
      take_event(changed_.get());
      if ((polled[1].revents & POLLIN) != 0) accept();
      const std::lock_guard lock(mutex_);
      size_t at = 2;
      for (Connection& each : open_) {
        if (at >= polled.size()) break;  // it is new
        if (polled[at].revents != 0) carry(each, each.client, each.server, &sent_);
        if (polled[at + 1].revents != 0) carry(each, each.server, each.client, nullptr);
        at += 2;
      }
      open_.remove_if([](const Connection& each) { return each.has_ended; });
    }
  }

  void accept() {
    Descriptor client(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const std::lock_guard lock(mutex_);
    ++connections_;
    open_.push_back({.client = std::move(client), .server = connect_from("127.0.0.1", target_)});
  }

  void carry(Connection& one, const Descriptor& from, const Descriptor& to, std::string* copy) {
    std::string bytes;
    if (one.has_ended || read_some(from.get(), bytes) != Reading::bytes) {
      one.has_ended = true;
      return;
    }
    if (copy && copy->size() < 1 << 16) *copy += bytes;
    one.carried += bytes.size();
    if (cut_every_ != 0 && one.carried > cut_every_) {
      bytes.resize(bytes.size() / 2);  // in the middle of what the other end reads
      one.has_ended = true;
    }
    send_all(to.get(), bytes);
  }

  const int target_;
  Descriptor listener_, changed_ = make_event();
  int port_ = 0;
  std::mutex mutex_;
  std::list<Connection> open_;
  std::string sent_;
  size_t cut_every_ = 0;
  int connections_ = 0;
  bool holds_ = false, cuts_ = false, ends_ = false;
  std::thread thread_;
};

}  // namespace lockstep::testing
