// A TCP connection that sends and receives text, with one deadline for all of it.
#pragma once
#include <chrono>
#include <string>
#include <string_view>

#include "protocol/descriptor.h"

namespace lockstep::inspect {

class DeadlineSocket {
 public:
  /// Connects to "HOST:PORT" or "[IPv6]:PORT". At most `most` bytes are received. Throws UnreadableEvidence, as all
  /// functions here do, with the address and the reason.
  DeadlineSocket(const std::string& address, std::chrono::milliseconds deadline, size_t most);
  DeadlineSocket(const DeadlineSocket&) = delete;
  DeadlineSocket& operator=(const DeadlineSocket&) = delete;

  void send(std::string_view text);
  /// Returns the next line, without its end.
  std::string line();
  /// Returns all until the other side closes the connection.
  std::string rest();

 private:
  void wait_for(short events, const char* what);
  /// Returns false at the end.
  bool receive();

  const std::string address_;
  const std::chrono::steady_clock::time_point end_;
  const size_t most_;
  size_t received_ = 0;
  Descriptor fd_;
  std::string buffer_;
};

}  // namespace lockstep::inspect
