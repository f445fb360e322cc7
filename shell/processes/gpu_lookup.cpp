#include "shell/processes/gpu_lookup.h"

#include <utility>

#include "protocol/error.h"

namespace lockstep::shell {
namespace {

// A process that was killed is gone by then, if the driver lets it go.
constexpr std::chrono::milliseconds kEndsWithin{200};

/// Returns the process that is stuck in the driver; null while none is. It stays when its owner is gone.
std::unique_ptr<Child>& stuck_process() {
  static auto* child = new std::unique_ptr<Child>;  // not destroyed: that waits for the end of the process
  return *child;
}

}  // namespace

GpuLookup::GpuLookup(EventLoop& loop) : loop_(loop) {
  if (auto& stuck = stuck_process()) {
    if (!stuck->ended()) {
      problem_ = "NVML has not answered an earlier question yet (process " + std::to_string(stuck->pid()) +
                 " is stuck in the driver): a GPU may be lost, see dmesg";
      return;
    }
    stuck.reset();
  }
  try {
    pipe_ = make_pipe();
    Launch launch;
    launch.program = find_program("lockstep");
    launch.arguments = {"gpus", "--lines"};
    launch.output = pipe_.write.get();
    child_ = std::make_unique<Child>(launch);
    pipe_.write.reset();
    set_nonblocking(pipe_.read.get());
    open_ = true;
    loop_.watch(pipe_.read.get(), [this] {
      if (read()) return;
      open_ = false;
      loop_.forget(pipe_.read.get());
    });
  } catch (const StartError& error) {
    problem_ = error.what();
  }
}

/// Whether more may come.
bool GpuLookup::read() {
  const Reading found = read_some(pipe_.read.get(), text_);
  if (found != Reading::bytes) return found == Reading::empty;
  for (size_t end; (end = text_.find('\n')) != std::string::npos; text_.erase(0, end + 1))
    lines_.take(text_.substr(0, end));
  return true;
}

gpus::Machine GpuLookup::finish(std::chrono::milliseconds limit) {
  if (!problem_.empty()) return {.problem = problem_, .driver = {}, .cuda = 0, .gpus = {}};
  loop_.run_until([this] { return !open_ || lines_.complete(); }, EventLoop::Clock::now() + limit);
  return lines_.machine();
}

GpuLookup::~GpuLookup() {
  if (open_) loop_.forget(pipe_.read.get());
  if (!child_) return;
  child_->kill();
  if (!child_->ended_within(kEndsWithin)) stuck_process() = std::move(child_);
}

gpus::Machine look_at_gpus(std::chrono::milliseconds limit) {
  EventLoop loop;
  return GpuLookup(loop).finish(limit);
}

}  // namespace lockstep::shell
