// Looks at the connections that sockets of ZeroMQ take, before ZeroMQ has read a byte of them. ZeroMQ has no call for that,
// so accept4() of this program stands in front of the C library's.
#pragma once
#include <functional>

namespace lockstep::shell {

class AcceptCheck {
 public:
  /// `admits` is asked on a thread of ZeroMQ about each connection that accept4() takes in this process, to whatever port.
  /// A connection that it does not admit is closed.
  explicit AcceptCheck(std::function<bool(int fd)> admits);
  /// `admits` is not being asked any more when this returns.
  ~AcceptCheck();
  AcceptCheck(const AcceptCheck&) = delete;
  AcceptCheck& operator=(const AcceptCheck&) = delete;

  static bool all_admit(int fd);

 private:
  const std::function<bool(int)> admits_;
};

}  // namespace lockstep::shell
