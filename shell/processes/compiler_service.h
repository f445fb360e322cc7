// Uses lockstep-compiler for the session: one request at a time, ranks served meanwhile, and a compiler that was killed
// is started again and given all cells again, so that its death costs a moment and no names.
//
// No wait for the compiler depends on the compiler: cancel() and a time limit end each, also where its process has been
// stopped. A compiler that does not answer by then is ended by force, and the next request starts another.
#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "shell/processes/compiler_client.h"
#include "shell/processes/event_loop.h"
#include "shell/processes/object_source.h"

namespace lockstep::shell {

class CompilerService : public ObjectSource {
 public:
  /// Starts the compiler; returns at once. Throws StartError.
  CompilerService(EventLoop& loop, CompilerOptions options, TakeProgress progress);
  ~CompilerService() override;

  /// Serves until it is ready. Throws StartError with the compiler's reason.
  const protocol::CompilerReady& wait_ready() override;

  /// Serves until the answer is there. Where a Compile got none, the answer has the status `crash` (the compiler ended
  /// over it and has been started again), `timeout` or `cancelled`, with the reason in `rendered` and no diagnostics.
  /// Throws StartError when the compiler can't be started again, ChannelError when it gave no answer to another
  /// request.
  FromCompiler ask(const protocol::CompilerRequest& request) override;

  /// Sends Settle without waiting: the next request goes out when it is answered.
  void settle(const protocol::Settle& settle) override;

  int64_t definitions() const override { return definitions_; }

  /// Cancels a compile, a question, or a start.
  void cancel() override;

 private:
  class NotSent;
  class Waiting;
  void start();
  void receive();
  void take(FromCompiler from);
  void send(const protocol::CompilerRequest& request);
  void restart(const std::string& why);
  void give_up(const std::string& why);
  std::string no_answer(std::chrono::milliseconds limit) const;
  FromCompiler exchange(const protocol::CompilerRequest& request);
  FromCompiler ask_running(const protocol::CompilerRequest& request);
  FromCompiler unanswered(const protocol::Compile& compile, const std::string& reason);

  EventLoop& loop_;
  CompilerOptions options_;
  TakeProgress progress_;
  std::unique_ptr<CompilerClient> client_;
  std::optional<protocol::CompilerReady> ready_;
  bool was_ready_ = false;  // once: a start that fails is tried again from then on
  std::string failure_;  // of the start, or why the compiler is gone
  bool gone_ = false;
  bool outstanding_ = false;  // a request has not been answered
  bool sending_ = false;  // the compiler has not taken all of it yet
  bool waiting_ = false;
  bool cancelled_ = false, late_ = false;  // what ended the wait
  bool changes_ = false;  // the request that is under way does: see changes_names()
  int64_t compiling_ = 0;  // cell of the Compile that is under way
  std::optional<EventLoop::Timer> patience_;  // after cancel()
  std::optional<FromCompiler> answer_;
  std::vector<protocol::CompilerRequest> journal_;  // what a new compiler needs to know the names of all cells
  std::optional<protocol::Compile> unsettled_;
  int64_t definitions_ = 0;
};

}  // namespace lockstep::shell
