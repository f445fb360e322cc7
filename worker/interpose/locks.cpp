// Puts the worker's functions in front of those of the C library that wait for another thread: where the run thread waits
// in them, and a cell has called them, an interrupt ends the wait with an exception. std::mutex, std::condition_variable,
// std::future, std::thread::join, std::counting_semaphore and their like call them. On other threads, and for callers
// within libraries, they are the C library's.
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

#include "protocol/next_function.h"
#include "worker/process/endable_call.h"
#include "worker/process/interrupt.h"

using namespace lockstep::worker;
using lockstep::next_function;

namespace {

/// A condition that was waited for and has to be waited for again is a wait that ended without a reason: what was
/// signalled meanwhile must not be lost, and the caller looks at what it waits for.
int without_reason() { return 0; }

/// std::future, std::atomic and what is made of them wait by this system call.
bool is_futex_wait(long number, long operation) {
  const long command = operation & FUTEX_CMD_MASK;
  return number == SYS_futex && (command == FUTEX_WAIT || command == FUTEX_WAIT_BITSET);
}

}  // namespace

// The C library's headers say of some of them that they throw nothing, so the functions have names of their own here.
#define LOCKSTEP_WAIT(Result, name, ...)              \
  Result lockstep_##name(__VA_ARGS__) __asm__(#name); \
  Result lockstep_##name(__VA_ARGS__)
#define LOCKSTEP_REAL(name, ...) auto* const name = next_function<#name, int(__VA_ARGS__)>()
#define LOCKSTEP_REAL_2_3_2(name, ...) auto* const name = next_function<#name, int(__VA_ARGS__), "GLIBC_2.3.2">()

extern "C" {

/// Where the C library has no pthread_cond_clockwait (before glibc 2.30), a build for such systems has one
/// (cmake/portable/newer.c).
__attribute__((weak)) int lockstep_cond_clockwait(pthread_cond_t*, pthread_mutex_t*, clockid_t, const timespec*);

LOCKSTEP_WAIT(int, pthread_mutex_lock, pthread_mutex_t* mutex) {
  LOCKSTEP_REAL(pthread_mutex_lock, pthread_mutex_t*);
  LOCKSTEP_REAL(pthread_mutex_trylock, pthread_mutex_t*);
  LOCKSTEP_REAL(pthread_mutex_timedlock, pthread_mutex_t*, const timespec*);
  if (!on_run_thread()) return pthread_mutex_lock(mutex);
  if (const int result = pthread_mutex_trylock(mutex); result != EBUSY) return result;
  return endable_wait(
      nullptr, [&](const timespec* limit) { return pthread_mutex_timedlock(mutex, limit); },
      [&] { return pthread_mutex_lock(mutex); });
}

LOCKSTEP_WAIT(int, pthread_mutex_timedlock, pthread_mutex_t* mutex, const timespec* end) {
  LOCKSTEP_REAL(pthread_mutex_timedlock, pthread_mutex_t*, const timespec*);
  const auto lock = [&](const timespec* limit) { return pthread_mutex_timedlock(mutex, limit); };
  return endable_wait(end, lock, [&] { return lock(end); });
}

LOCKSTEP_WAIT(int, pthread_mutex_clocklock, pthread_mutex_t* mutex, clockid_t clock, const timespec* end) {
  LOCKSTEP_REAL(pthread_mutex_clocklock, pthread_mutex_t*, clockid_t, const timespec*);
  const auto lock = [&](const timespec* limit) { return pthread_mutex_clocklock(mutex, clock, limit); };
  return endable_wait(end, lock, [&] { return lock(end); });
}

LOCKSTEP_WAIT(int, pthread_rwlock_rdlock, pthread_rwlock_t* lock) {
  LOCKSTEP_REAL(pthread_rwlock_rdlock, pthread_rwlock_t*);
  LOCKSTEP_REAL(pthread_rwlock_timedrdlock, pthread_rwlock_t*, const timespec*);
  return endable_wait(
      nullptr, [&](const timespec* limit) { return pthread_rwlock_timedrdlock(lock, limit); },
      [&] { return pthread_rwlock_rdlock(lock); });
}

LOCKSTEP_WAIT(int, pthread_rwlock_wrlock, pthread_rwlock_t* lock) {
  LOCKSTEP_REAL(pthread_rwlock_wrlock, pthread_rwlock_t*);
  LOCKSTEP_REAL(pthread_rwlock_timedwrlock, pthread_rwlock_t*, const timespec*);
  return endable_wait(
      nullptr, [&](const timespec* limit) { return pthread_rwlock_timedwrlock(lock, limit); },
      [&] { return pthread_rwlock_wrlock(lock); });
}

// When the exception is thrown the mutex is held again, as whoever unlocks it on the way out expects.

LOCKSTEP_WAIT(int, pthread_cond_wait, pthread_cond_t* condition, pthread_mutex_t* mutex) {
  LOCKSTEP_REAL_2_3_2(pthread_cond_wait, pthread_cond_t*, pthread_mutex_t*);
  LOCKSTEP_REAL_2_3_2(pthread_cond_timedwait, pthread_cond_t*, pthread_mutex_t*, const timespec*);
  return endable_wait(
      nullptr, Leaving::anything,
      [&](const timespec* limit) { return pthread_cond_timedwait(condition, mutex, limit); },
      [&] { return pthread_cond_wait(condition, mutex); }, without_reason);
}

LOCKSTEP_WAIT(int, pthread_cond_timedwait, pthread_cond_t* condition, pthread_mutex_t* mutex, const timespec* end) {
  LOCKSTEP_REAL_2_3_2(pthread_cond_timedwait, pthread_cond_t*, pthread_mutex_t*, const timespec*);
  const auto wait = [&](const timespec* limit) { return pthread_cond_timedwait(condition, mutex, limit); };
  return endable_wait(end, Leaving::anything, wait, [&] { return wait(end); }, without_reason);
}

LOCKSTEP_WAIT(int, pthread_cond_clockwait, pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
              const timespec* end) {
  LOCKSTEP_REAL(pthread_cond_clockwait, pthread_cond_t*, pthread_mutex_t*, clockid_t, const timespec*);
  const auto real = pthread_cond_clockwait ? pthread_cond_clockwait : lockstep_cond_clockwait;
  const auto wait = [&](const timespec* limit) { return real(condition, mutex, clock, limit); };
  return endable_wait(end, Leaving::anything, wait, [&] { return wait(end); }, without_reason);
}

LOCKSTEP_WAIT(int, pthread_join, pthread_t thread, void** result) {
  LOCKSTEP_REAL(pthread_join, pthread_t, void**);
  LOCKSTEP_REAL(pthread_timedjoin_np, pthread_t, void**, const timespec*);
  return endable_wait(
      nullptr, [&](const timespec* limit) { return pthread_timedjoin_np(thread, result, limit); },
      [&] { return pthread_join(thread, result); }, Leaving::nothing);
}

LOCKSTEP_WAIT(int, sem_wait, sem_t* semaphore) {
  LOCKSTEP_REAL(sem_wait, sem_t*);
  LOCKSTEP_REAL(sem_timedwait, sem_t*, const timespec*);
  return endable_wait(
      nullptr, [&](const timespec* limit) { return sem_timedwait(semaphore, limit); },
      [&] { return sem_wait(semaphore); });
}

LOCKSTEP_WAIT(int, sem_timedwait, sem_t* semaphore, const timespec* end) {
  LOCKSTEP_REAL(sem_timedwait, sem_t*, const timespec*);
  const auto wait = [&](const timespec* limit) { return sem_timedwait(semaphore, limit); };
  return endable_wait(end, wait, [&] { return wait(end); });
}

/// The others of the six arguments are on the registers or on the stack, whatever they are.
LOCKSTEP_WAIT(long, syscall, long number, long a, long b, long c, long d, long e, long f) {
  auto* const real = next_function<"syscall", long(long, ...)>();
  const auto plain = [&] { return real(number, a, b, c, d, e, f); };
  // The time limit of FUTEX_WAIT is relative.
  const bool has_limit = d != 0;
  if (!is_futex_wait(number, b) || (has_limit && (b & FUTEX_CMD_MASK) == FUTEX_WAIT)) return plain();
  const bool has_bits = (b & FUTEX_CMD_MASK) == FUTEX_WAIT_BITSET;
  const long operation = (b & ~long{FUTEX_CMD_MASK}) | FUTEX_WAIT_BITSET;
  return endable_wait(
      reinterpret_cast<const timespec*>(d),
      [&](const timespec* limit) {
        return real(number, a, operation, c, limit, 0, has_bits ? f : long{FUTEX_BITSET_MATCH_ANY});
      },
      plain);
}
}
