// How a session runs a command of the shell's (`!make`).
#include <signal.h>

#include <utility>

#include "shell/session/session_state.h"

namespace lockstep::shell {

ProcessEnd SessionCore::run_command(const std::string& command) {
  if (options_.rehearsal) return {};
  Pipe output = make_pipe();
  Launch launch;
  launch.program = "/bin/sh";
  launch.arguments = {"-c", "cd -- \"$1\" && shift; " + command, "sh", directory_};
  launch.environment = configuration().environment;
  launch.output = output.write.get();
  Child child(launch);
  output.write.reset();
  std::string text;
  const auto show = [&](size_t length) {
    if (length > 0) message(text.substr(0, length));
    text.erase(0, length);
  };
  bool ended = false, interrupted = false;
  EventLoop& loop = state_->loop;
  const auto read_output = [&] {
    if (read_some(output.read.get(), text) != Reading::bytes) return false;
    const size_t end = text.rfind('\n');
    if (end != std::string::npos) show(end + 1);
    return true;
  };
  bool open = true;
  loop.watch(output.read.get(), [&] {
    if (read_output()) return;
    open = false;
    loop.forget(output.read.get());
  });
  loop.watch(child.pidfd(), [&] {
    ended = true;
    loop.forget(child.pidfd());
  });
  const InterruptScope interrupts(state_->interrupt_command, [&] {
    if (std::exchange(interrupted, true))
      child.kill();
    else
      ::kill(-child.pid(), SIGINT);
  });
  // The loop runs until the command has ended; what it left in the background may hold the pipe open for ever, and is ended with it.
  loop.run_until([&] { return ended; });
  const ProcessEnd end = child.finish();
  loop.run_until([&] { return !open; });
  show(text.size());
  return end;
}

}  // namespace lockstep::shell
