#include "worker/process/interrupt.h"

#include <poll.h>
#include <time.h>

#include <atomic>
#include <cerrno>
#include <exception>
#include <mutex>
#include <system_error>

#include "protocol/cell_abi.h"
#include "protocol/descriptor.h"
#include "worker/process/parallel.h"
#include "worker/process/run_state.h"

int32_t lockstep_poll_requested = 0;

namespace lockstep::worker {
namespace {

std::mutex g_mutex;
std::atomic<int64_t> g_armed{0};
std::atomic<StopReason> g_pending{StopReason::none};
thread_local bool t_is_run_thread = false;

void set_poll_requested(int32_t value) { __atomic_store_n(&lockstep_poll_requested, value, __ATOMIC_RELAXED); }

}  // namespace

StopRequests& stop_requests() {
  static auto* const requests = new StopRequests;  // never destroyed: threads use it until the process is gone
  return *requests;
}

StopRequests::StopRequests() : fd_(make_event().release()) {
  if (fd_ < 0) throw std::system_error(errno, std::generic_category(), "no eventfd could be made");
}

void StopRequests::arm(int64_t cell) {
  const std::lock_guard lock(g_mutex);
  g_armed = cell;
}

bool StopRequests::request(int64_t cell, StopReason reason) {
  const std::lock_guard lock(g_mutex);
  if (cell == 0 || g_armed != cell) return false;
  // An interrupt is the user's word and outweighs an abort.
  if (g_pending != StopReason::interrupt) g_pending = reason;
  if (reason == StopReason::interrupt) {
    set_poll_requested(1);
    set_event(fd_);
  }
  return true;
}

StopReason StopRequests::disarm() {
  const std::lock_guard lock(g_mutex);
  const auto reason = g_pending.load();
  g_armed = 0;
  g_pending = StopReason::none;
  set_poll_requested(0);
  take_event(fd_);
  return reason;
}

StopReason StopRequests::pending() const { return g_pending; }

StopReason StopRequests::pending_within(std::chrono::milliseconds limit) const {
  pollfd request{fd_, POLLIN, 0};
  (void)::poll(&request, 1, static_cast<int>(limit.count()));
  return g_pending;
}
int64_t StopRequests::armed() const { return g_armed; }

void become_run_thread() { t_is_run_thread = true; }
bool on_run_thread() { return t_is_run_thread; }

bool may_throw_here() {
  return t_is_run_thread && run_state().phase() == RankState::running && std::uncaught_exceptions() == 0 &&
         !in_parallel_region();
}

}  // namespace lockstep::worker
