// The thread that runs cells. It is the main one, so that debuggers, signals and things that are bound to a thread
// behave as in any program. It takes tasks one by one, and reports what became of them.
#pragma once
#include <memory>
#include <optional>
#include <string>

#include "worker/cell/loaded_cells.h"
#include "worker/device.h"
#include "worker/device_work.h"
#include "worker/io_thread.h"
#include "worker/process/configuration.h"
#include "worker/process/outbox.h"
#include "worker/run_queue.h"

namespace lockstep::worker {

class RunThread {
 public:
  RunThread(const Configuration& configuration, Outbox& outbox, RunQueue& queue, IoThread& io);

  /// Sends Hello, sets up device, threads and process group, then takes tasks until Shutdown. Returns the exit code.
  int run();

 private:
  bool start();
  bool not_ready(const std::string& message);

  void handle(const protocol::Prelude& prelude);
  void handle(const protocol::Load& load, const std::string& bytes);
  void handle(const protocol::Drop& drop);
  void handle(const protocol::Run& run);
  void handle(const protocol::Builtin& builtin);
  void handle(const protocol::Regroup& regroup, int64_t aborts);
  static void take_rank_number();
  void follow_size(const protocol::Regroup& regroup);
  void handle(const protocol::Configure& configure);

  void begin_cell(int64_t cell, int64_t number);
  /// Waits for the cell's work on the device, and adds to `done` what failed there.
  void end_device_work(protocol::Done& done, int64_t step);
  void end_cell(protocol::Done done, double run_ms);
  /// Reports the cell's error as the rank's last words, and ends the process: the context of the device is lost.
  [[noreturn]] void end_rank(const protocol::Done& done);

  const Configuration& configuration_;
  int threads_;  // intra-op, that the session has given this rank
  Outbox& outbox_;
  RunQueue& queue_;
  IoThread& io_;
  std::unique_ptr<Device> device_;
  std::optional<DeviceWork> device_work_;
  bool device_is_lost_ = false;
  LoadedCells cells_;
  bool ended_ = false;
};

}  // namespace lockstep::worker
