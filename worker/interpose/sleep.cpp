// Puts the worker's nanosleep, clock_nanosleep, usleep and sleep in front of the C library's: on the run thread they
// wake up when the cell is interrupted, and throw. (std::this_thread::sleep_for goes on sleeping after EINTR, so that a
// signal would not do.) On other threads they are the C library's.
#include <errno.h>
#include <poll.h>
#include <time.h>
#include <unistd.h>

#include "protocol/cell_abi.h"
#include "protocol/next_function.h"
#include "worker/process/interrupt.h"
#include "worker/process/run_state.h"
#include "worker/process/stack.h"

namespace lockstep::worker {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

bool valid(const timespec& t) { return t.tv_sec >= 0 && t.tv_nsec >= 0 && t.tv_nsec < kSecond; }

int64_t nanoseconds(const timespec& t) {
  constexpr int64_t kMost = INT64_MAX / kSecond - 1;
  return (t.tv_sec > kMost ? kMost : t.tv_sec) * kSecond + t.tv_nsec;
}

timespec to_timespec(int64_t ns) { return {static_cast<time_t>(ns / kSecond), static_cast<long>(ns % kSecond)}; }

int64_t now(clockid_t clock) {
  timespec t;
  clock_gettime(clock, &t);
  return nanoseconds(t);
}

/// Sleeps until `end` on `clock`. Returns what was left when a signal handler of the user's ran, 0 otherwise.
int64_t sleep_until(clockid_t clock, int64_t end) {
  bool throwable = may_throw_here();
  // Frames of the worker are left out of stacks, so a query about the rank needs this to show that it sleeps.
  struct Asleep {
    Asleep() { run_state().set_asleep(true); }
    ~Asleep() { run_state().set_asleep(false); }
  } asleep;
  for (;;) {
    const int64_t left = end - now(clock);
    if (left <= 0) return 0;
    pollfd stop{stop_requests().fd(), POLLIN, 0};
    const timespec limit = to_timespec(left);
    const int before = StackProbe::interruptions();
    const int ready = ::ppoll(throwable ? &stop : nullptr, throwable ? 1 : 0, &limit, nullptr);
    if (ready > 0) {
      lockstep_poll();
      throwable = false;  // it must not throw here, so the sleep goes on
    }
    if (ready < 0 && errno == EINTR && StackProbe::interruptions() == before) {
      const int64_t rest = end - now(clock);
      return rest > 0 ? rest : 0;
    }
  }
}

}  // namespace
}  // namespace lockstep::worker

using namespace lockstep::worker;
using lockstep::next_function;

extern "C" {

int nanosleep(const timespec* wanted, timespec* left) {
  auto* const real = next_function<"nanosleep", int(const timespec*, timespec*)>();
  if (!on_run_thread() || !wanted || !valid(*wanted)) return real(wanted, left);
  const int64_t rest = sleep_until(CLOCK_MONOTONIC, now(CLOCK_MONOTONIC) + nanoseconds(*wanted));
  if (rest == 0) return 0;
  if (left) *left = to_timespec(rest);
  errno = EINTR;
  return -1;
}

int clock_nanosleep(clockid_t clock, int flags, const timespec* wanted, timespec* left) {
  auto* const real = next_function<"clock_nanosleep", int(clockid_t, int, const timespec*, timespec*)>();
  const bool known = clock == CLOCK_REALTIME || clock == CLOCK_MONOTONIC || clock == CLOCK_BOOTTIME;
  if (!on_run_thread() || !known || !wanted || !valid(*wanted)) return real(clock, flags, wanted, left);
  const bool absolute = (flags & TIMER_ABSTIME) != 0;
  const int64_t rest = sleep_until(clock, absolute ? nanoseconds(*wanted) : now(clock) + nanoseconds(*wanted));
  if (rest == 0) return 0;
  if (left && !absolute) *left = to_timespec(rest);
  return EINTR;
}

int usleep(useconds_t microseconds) {
  const timespec wanted = to_timespec(int64_t{microseconds} * 1000);
  return nanosleep(&wanted, nullptr);
}

unsigned sleep(unsigned seconds) {
  timespec wanted{static_cast<time_t>(seconds), 0}, left{0, 0};
  if (nanosleep(&wanted, &left) == 0) return 0;
  return static_cast<unsigned>(left.tv_sec) + (left.tv_nsec > 0 ? 1 : 0);
}
}
