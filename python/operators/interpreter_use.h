// Requests that take the interpreter's lock on a thread of the agent. While the interpreter ends, Python ends a thread
// that asks for its lock (pthread_exit): that unwinds C++ up to std::terminate, or leaves the main thread without its
// state. So they are over before.
#pragma once

namespace lockstep::python {

/// A request that may take the lock while it lives.
class InterpreterUse {
 public:
  /// `wanted`: false makes an object that may not.
  explicit InterpreterUse(bool wanted = true);
  ~InterpreterUse();
  InterpreterUse(const InterpreterUse&) = delete;
  InterpreterUse& operator=(const InterpreterUse&) = delete;
  /// False once the interpreter is about to end.
  explicit operator bool() const { return may_; }

 private:
  const bool may_;
};

/// At the end of the program: no request begins any more, and this waits for those that have begun. The caller does not
/// hold the interpreter's lock.
void finish_interpreter_uses();

}  // namespace lockstep::python
