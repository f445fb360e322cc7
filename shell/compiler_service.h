// lockstep-compiler as the session uses it: one request at a time, ranks served meanwhile, and a compiler that was killed is started again and
// told all cells anew, so that its death costs a moment and no names.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "shell/compiler_client.h"
#include "shell/event_loop.h"

namespace lockstep::shell {

class CompilerService {
 public:
  /// Starts the compiler; returns at once. `progress` gets messages for people. Throws StartError.
  CompilerService(EventLoop& loop, CompilerOptions options, std::function<void(const std::string&)> progress);
  ~CompilerService();

  /// Serves until it is ready. Throws StartError with the compiler's reason.
  const protocol::CompilerReady& wait_ready();

  /// Serves until the answer is there. A compiler that ends over a Compile is started again, and the answer has the status
  /// "crash". Throws StartError when it can't be started again, ChannelError when it ended over another request.
  FromCompiler ask(const protocol::CompilerRequest& request);

  /// Sends Settle without waiting: the next request goes out when it is answered.
  void settle(const protocol::Settle& settle);

  /// Changes whenever what a text means may have: a cell that defines something, %reset.
  int64_t definitions() const { return definitions_; }

  /// Gives up the compile, or the start, that is under way: from a callback.
  void cancel();

 private:
  void start();
  void receive();
  void restart();
  FromCompiler exchange(const protocol::CompilerRequest& request);

  EventLoop& loop_;
  CompilerOptions options_;
  std::function<void(const std::string&)> progress_;
  std::unique_ptr<CompilerClient> client_;
  std::optional<protocol::CompilerReady> ready_;
  std::string failure_;  // of the start, or why the compiler is gone
  bool gone_ = false;
  bool outstanding_ = false;  // a request has not been answered
  int64_t compiling_ = 0;  // cell of the Compile that is under way
  std::optional<FromCompiler> answer_;
  std::vector<protocol::CompilerRequest> journal_;  // what a compiler started afresh has to be told
  std::optional<protocol::Compile> unsettled_;
  int64_t definitions_ = 0;
};

}  // namespace lockstep::shell
