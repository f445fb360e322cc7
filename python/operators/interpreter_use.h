// Ends requests that take the interpreter's lock on a thread of the agent before the interpreter ends. While it ends,
// Python ends a thread that asks for its lock (pthread_exit): that unwinds C++ up to std::terminate, or leaves the main
// thread without its state.
#pragma once

namespace lockstep::python {

/// A request that may take the lock while it lives.
class InterpreterUse {
 public:
  /// With `wanted` false the object is one that may not.
  explicit InterpreterUse(bool wanted = true);
  ~InterpreterUse();
  InterpreterUse(const InterpreterUse&) = delete;
  InterpreterUse& operator=(const InterpreterUse&) = delete;
  /// Returns false once the interpreter is about to end.
  explicit operator bool() const { return may_; }

 private:
  const bool may_;
};

/// Called at the end of the program, without the interpreter's lock: no request begins any more, and this waits for
/// those that have begun.
void finish_interpreter_uses();

}  // namespace lockstep::python
