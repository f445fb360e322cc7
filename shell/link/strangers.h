// Connections to a port of this process that have not shown yet that they belong to the session. There are so many at once
// at most, from one address and from all, and those that never belonged are told of once for each address.
#pragma once
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <zmq.hpp>

#include "shell/processes/accept_check.h"
#include "shell/processes/event_loop.h"

namespace lockstep::shell {

class Strangers {
 public:
  /// Watches who comes to `socket`, which listens on `port`. `report` gets a sentence, and `ended` the descriptor of a
  /// connection that belonged to the session.
  Strangers(EventLoop& loop, zmq::context_t& context, zmq::socket_ref socket, int port,
            std::function<void(std::string)> report, std::function<void(int)> ended);
  ~Strangers();
  Strangers(const Strangers&) = delete;
  Strangers& operator=(const Strangers&) = delete;

  /// Who comes from this address has a key of the session. A connection from there may be cut before it has shown that.
  void knows(const std::string& address) { known_.insert(address); }
  /// The connection of this descriptor belongs to the session.
  void belongs(int descriptor);
  void refuse(const std::string& address, const std::string& why);

 private:
  struct Accepted {
    int descriptor = -1;
    std::string address;
  };
  bool admits(int descriptor);
  void take_events();
  void leaves(const std::string& address);

  EventLoop& loop_;
  zmq::socket_ref socket_;
  const int port_;
  const std::function<void(std::string)> report_;
  const std::function<void(int)> ended_;
  zmq::socket_t monitor_;
  std::map<int, std::string> waiting_;  // by descriptor
  std::set<std::string> known_, told_;

  std::mutex mutex_;  // of what threads of ZeroMQ write
  std::deque<Accepted> accepted_;  // whose event has not been read
  std::map<std::string, int> counts_;  // of those accepted and waiting
  int count_ = 0;

  const AcceptCheck check_;  // the last: it calls
};

}  // namespace lockstep::shell
