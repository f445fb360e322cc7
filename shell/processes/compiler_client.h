// The session's side of lockstep-compiler. It starts the compiler, sends requests, and takes responses, one request at
// a time. Nothing here waits for the compiler, which may have been stopped in the middle of a message: what it does not
// take yet is kept, what has not arrived whole, too.
//
// The compiler may be a process that was warm already and only took over the channel; it is gone when the channel ends.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "protocol/compiler_messages.h"
#include "protocol/pipe_channel.h"
#include "shell/processes/launcher.h"
#include "shell/processes/object_source.h"
#include "shell/processes/output_tail.h"

namespace lockstep::shell {

class CompilerClient {
 public:
  /// Starts it; the first response is CompilerReady or CompilerFailed, with CompilerProgress before. Throws StartError.
  explicit CompilerClient(const CompilerOptions& options);

  int fd() const { return channel_.get(); }  // readable when something has arrived, or the compiler is gone
  pid_t pid() const { return process_->pid(); }
  /// Sends as much as the compiler takes; flush() sends the rest. A compiler that is gone is noticed by take().
  void send(const protocol::CompilerRequest& request);
  bool has_unsent() const { return !unsent_.empty(); }
  void flush();  // when fd() can be written to
  /// Takes what has arrived, without waiting. Returns false when the compiler is gone.
  bool take();
  /// Returns the next response that has arrived whole. Throws ChannelError for what is none.
  std::optional<FromCompiler> next();
  OutputTail& output() { return output_; }
  /// Returns what became of the process, and what it wrote last to its error stream, for messages. Ends the process.
  std::string last_words();
  /// Ends the process by force.
  void end() { process_->kill(); }

 private:
  Descriptor channel_;
  std::string unsent_;
  protocol::MessageAssembler arriving_;
  OutputTail output_;
  std::unique_ptr<Child> process_;
};

}  // namespace lockstep::shell
