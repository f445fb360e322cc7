// The transport may ask for which collective of the watched backend it is called.
#pragma once
#include "collectives/watch/entered.h"

namespace lockstep::dist {

/// Says to the transport which collective the calling thread calls it for, as long as this lives.
class CallsTransport {
 public:
  explicit CallsTransport(const Entered& entered) { current_ = &entered; }
  ~CallsTransport() { current_ = nullptr; }
  CallsTransport(const CallsTransport&) = delete;
  CallsTransport& operator=(const CallsTransport&) = delete;
  /// Null: none of the watched backend.
  static const Entered* current() { return current_; }

 private:
  static thread_local const Entered* current_;
};

}  // namespace lockstep::dist
