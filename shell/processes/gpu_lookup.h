// Asks for the state of this machine's GPUs. NVML is called in a process of its own (`lockstep gpus`): a call about a
// lost GPU can block in the driver without end, and with it the caller. After a deadline the process is left, and
// GPUs that it has said nothing of are shown so. While such a process is stuck, no other one is started.
#pragma once
#include <chrono>
#include <memory>
#include <string>

#include "inspectors/gpus/gpus.h"
#include "shell/processes/event_loop.h"
#include "shell/processes/launcher.h"

namespace lockstep::shell {

class GpuLookup {
 public:
  /// Starts to ask; finish() waits. What goes wrong becomes a problem of the result.
  explicit GpuLookup(EventLoop& loop);
  ~GpuLookup();
  GpuLookup(const GpuLookup&) = delete;
  GpuLookup& operator=(const GpuLookup&) = delete;

  /// Returns what has come until all GPUs have answered, or until `limit` from now. Serves the loop meanwhile. Once.
  gpus::Machine finish(std::chrono::milliseconds limit);

 private:
  bool read();

  EventLoop& loop_;
  Pipe pipe_;
  std::unique_ptr<Child> child_;
  std::string text_;
  gpus::Lines lines_;
  bool open_ = false;
  std::string problem_;
};

/// Does the same for callers without a loop.
gpus::Machine look_at_gpus(std::chrono::milliseconds limit);

}  // namespace lockstep::shell
