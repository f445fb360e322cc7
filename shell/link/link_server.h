// Lets programs on other machines connect to this process over tcp, where no launcher gives a pipe to them. Each that has a
// key of a ticket gets a stream of bytes (link_stream.h), whose other end is handed out here as a descriptor. What goes over
// the network is encrypted and authenticated by CURVE. The ticket's key admits a key that the program has made for
// itself; its stream belongs to that one.
//
// All of it runs on a thread of its own, since owners of such descriptors may wait for them without serving an event loop.
#pragma once
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "protocol/descriptor.h"
#include "shell/link/link_messages.h"
#include "shell/link/link_ticket.h"
#include "shell/processes/call_queue.h"
#include "shell/processes/event_loop.h"

namespace lockstep::shell {

struct LinkPeer {
  std::string ticket;  // the name under which its key was admitted
  std::string address;  // from where it has come
  nlohmann::json about;  // what it says of itself: not checked, but that it is JSON
  std::string key;  // public, of this program alone
};

class LinkServer {
 public:
  /// Called by the loop.
  struct Listener {
    /// A program has connected; the descriptor is one end of a socket pair.
    std::function<void(const LinkPeer&, Descriptor)> came;
    /// There has been no word from it for so long; none: it answers again. Its stream goes on.
    std::function<void(const LinkPeer&, std::chrono::milliseconds silence)> silent;
    /// Its stream has ended without its doing, and why.
    std::function<void(const LinkPeer&, const std::string& why)> lost;
    /// Is called with what was kept out, as a sentence; once for each address.
    std::function<void(const std::string&)> refused;
  };

  /// Listens on one address of this machine (not on all), or on that of an interface; port 0: any that is free. Throws
  /// UsageError and StartError.
  LinkServer(EventLoop& loop, const std::string& address, int port, Listener listener, LinkLimits limits = {});
  /// What has been written to the descriptors is sent, within a limit, to who is connected. Then all streams end.
  ~LinkServer();
  LinkServer(const LinkServer&) = delete;
  LinkServer& operator=(const LinkServer&) = delete;

  int port() const;
  /// Admits a new key. `name`: who will have it. `addresses`: by which this machine is reached, if not by that where it
  /// listens.
  LinkTicket admit(const std::string& name, std::vector<std::string> addresses = {});
  /// Ends the stream of a program that has come, whose end here is `end`; it is told why.
  void refuse(const LinkPeer& peer, Descriptor end, const std::string& why);

 private:
  class Router;

  CallQueue calls_;  // from its thread
  std::unique_ptr<Router> router_;
  std::thread thread_;
};

}  // namespace lockstep::shell
