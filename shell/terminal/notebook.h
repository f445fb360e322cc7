// A notebook in front of the session of a terminal (shell/jupyter/kernel.h), instead of a person who types there.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "protocol/descriptor.h"
#include "shell/events/event.h"
#include "shell/session/session.h"
#include "shell/text/screen.h"

namespace lockstep::shell {

class Notebook {
 public:
  virtual ~Notebook() = default;

  /// Runs its cells until it is let go, or the session's process is to end. Returns whether a cell asks for the session's
  /// end. Before it is called, the cell of the terminal may still run: requests wait then.
  virtual bool serve() = 0;
  virtual void take(const Event& event) = 0;
  /// Ends the connection. Its cell goes on, and serve() returns after it.
  virtual void let_go() = 0;
  /// Ends the question for a line that its cell asks, or interrupts the cell. Async-signal-safe.
  virtual void interrupt() noexcept = 0;
};

/// What a notebook needs of the terminal whose session it serves.
struct NotebookServices {
  Session& session;  // outlives the notebook
  std::function<bool()> is_over;  // the process is to end
  std::function<std::string(const Screen&)> unseen;  // what it has not seen; asked for once
  std::function<void(const std::string& code)> began;  // a cell, for those that look on
};

/// Makes a notebook, which is at the other end of the socket and signs its messages with `key`.
using MakeNotebook = std::function<std::shared_ptr<Notebook>(const NotebookServices& services, Descriptor socket,
                                                             const std::string& key)>;

}  // namespace lockstep::shell
