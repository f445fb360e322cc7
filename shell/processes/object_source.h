// Gives a session the objects of its cells: lockstep-compiler (compiler_service.h), or a file that was built ahead
// (shell/built/). It is asked in the words of protocol/compiler_messages.h, one request at a time.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "protocol/compiler_messages.h"

namespace lockstep::shell {

class EventLoop;

/// It is enough for a cell that includes all of a large library, and what a laptop can spare.
inline constexpr int64_t kCompileMemoryMb = 3072;

struct CompilerOptions {
  std::string session_directory;
  std::vector<std::string> include_dirs;
  int64_t memory_limit_mb = kCompileMemoryMb;  // what compiling a cell may take; 0: no limit
  /// Folders of a Python job's torch and of the package's headers, for its cells. Empty: those of sessions.
  std::string torch = {}, headers = {};
};

struct FromCompiler {
  protocol::CompilerResponse response;
  std::vector<std::string> frames;
};

class ObjectSource {
 public:
  virtual ~ObjectSource() = default;

  /// Serves until it takes requests. Throws StartError with the reason why it can't.
  virtual const protocol::CompilerReady& wait_ready() = 0;

  /// Serves until the answer is there. A Compile is always answered by Compiled. Throws ChannelError where another
  /// request has no answer, StartError where nothing can be asked any more.
  virtual FromCompiler ask(const protocol::CompilerRequest& request) = 0;

  /// Takes how the cell that was compiled last ended on its ranks. Does not wait.
  virtual void settle(const protocol::Settle& settle) = 0;

  /// Changes whenever what a text means may have: a cell that defines something, %reset.
  virtual int64_t definitions() const = 0;

  /// Ends the wait that is under way, from a callback. Does nothing where none is.
  virtual void cancel() = 0;
};

/// Gets what takes long at the start, and messages for people.
using TakeProgress = std::function<void(const protocol::CompilerProgress&)>;

/// Called at each start of a session. Throws StartError.
using MakeObjectSource = std::function<std::unique_ptr<ObjectSource>(EventLoop& loop, const CompilerOptions& options,
                                                                     TakeProgress progress)>;

}  // namespace lockstep::shell
