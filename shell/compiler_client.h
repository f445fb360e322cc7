// The session's side of lockstep-compiler: starts it, sends requests, takes responses, one request at a time.
//
// The compiler may be a process that was warm already and only took over the channel; it is gone when the channel ends.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "protocol/compiler_messages.h"
#include "shell/launcher.h"
#include "shell/output_tail.h"

namespace lockstep::shell {

struct CompilerOptions {
  std::string session_directory;
  std::vector<std::string> include_dirs;
};

struct FromCompiler {
  protocol::CompilerResponse response;
  std::vector<std::string> frames;
};

class CompilerClient {
 public:
  /// Starts it; the first response is CompilerReady or CompilerFailed, with CompilerProgress before. Throws StartError.
  explicit CompilerClient(const CompilerOptions& options);

  int fd() const { return channel_.get(); }  // readable when a response has begun to arrive, or the compiler is gone
  void send(const protocol::CompilerRequest& request);
  /// Reads one response; nothing when the compiler is gone. Throws ChannelError for what is none.
  std::optional<FromCompiler> receive();
  OutputTail& output() { return output_; }
  /// What became of the process, and what it wrote last to its error stream, for messages. Ends the process.
  std::string last_words();

 private:
  Descriptor channel_;
  OutputTail output_;
  std::unique_ptr<Child> process_;
};

}  // namespace lockstep::shell
