// The thread that is connected to the hub. It owns the socket, reads what the process writes, and answers control
// messages whatever the run thread does: it sleeps in one poll over the socket, the output pipes, the lifeline and a
// descriptor that the run thread, signal handlers and dying threads write to. It never waits for user code.
#pragma once
#include <atomic>
#include <chrono>
#include <deque>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <vector>
#include <zmq.hpp>

#include "protocol/worker_messages.h"
#include "worker/cell/symbols.h"
#include "worker/device.h"
#include "worker/process/configuration.h"
#include "worker/process/outbox.h"
#include "worker/process/output_pipes.h"
#include "worker/run_queue.h"

namespace lockstep::worker {

class IoThread {
 public:
  /// Connects to the hub and starts the thread. `event_fd` is an eventfd that is written to whenever there is something
  /// to look at (by the outbox, the stack probe, the crash handlers).
  IoThread(const Configuration& configuration, Outbox& outbox, OutputPipes& pipes, RunQueue& queue, int event_fd);
  IoThread(const IoThread&) = delete;

  /// Names the device in answers to status from now on. On the run thread, once.
  void set_device(const Device* device) { device_ = device; }
  /// Makes the thread look whether a collective that was entered lasts. From any thread.
  void look_at_waits();
  /// Sends all that has been written and posted and closes the connection. Waits for it, with a limit. Called once.
  void finish();

 private:
  using Clock = std::chrono::steady_clock;

  void run();
  void receive();
  void handle(protocol::HubMessage message, std::string frame);
  void handle_query(const protocol::Query& query);
  void reply(const protocol::Query& query, const protocol::Answer& answer);
  void interrupt(int64_t cell, const char* reason);
  void end_calls();
  void shut_down();
  void send(const protocol::WorkerMessage& message, std::string frame = {});
  void pump(bool regardless_of_credit);
  bool send_output(Stream stream, bool regardless_of_credit);
  void send_outgoing(Outgoing outgoing);
  void report_death();
  void answer_stack_queries();
  void answer_stack_queries(const std::optional<std::vector<Frame>>& frames);
  void report_long_waits();
  void close_connection();
  [[noreturn]] void end_group();
  long poll_timeout() const;

  const Configuration& configuration_;
  Outbox& outbox_;
  OutputPipes& pipes_;
  RunQueue& queue_;
  int event_fd_;
  std::atomic<const Device*> device_{nullptr};

  zmq::context_t context_{1};
  std::optional<zmq::socket_t> socket_;
  Symbols symbols_;
  int64_t credit_ = protocol::kOutputWindow;
  int64_t output_cell_ = 0;
  Clock::time_point read_after_{};  // small writes are gathered for a moment
  std::vector<protocol::Query> stack_queries_;  // that wait for the run thread's stack
  bool held_ = false;  // the kernel held the run thread when it was asked
  std::optional<Clock::time_point> stack_deadline_;
  std::atomic<bool> waits_entered_{false};
  std::optional<Clock::time_point> waits_due_;  // when to look whether a collective lasts
  std::optional<Clock::time_point> end_call_at_;  // an interrupt is pending, and the run thread may wait in a call
  std::optional<Clock::time_point> end_deadline_;  // the process is ending; if it has not by then, it is ended
  int exit_code_ = 0;
  std::atomic<bool> finish_requested_{false};
  std::promise<void> finished_;
  std::thread thread_;
};

}  // namespace lockstep::worker
