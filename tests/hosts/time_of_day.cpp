// Loaded before the C library: the time of day of a program is AHEAD_S seconds ahead of the machine's. Namespaces have
// only the other clocks. What waits until a time of day waits for too long.
#include <dlfcn.h>
#include <sys/time.h>

#include <cstdlib>
#include <ctime>

namespace {
time_t ahead_s() {
  static const char* const text = std::getenv("AHEAD_S");
  return text ? std::atoi(text) : 0;
}

int machine_clock(clockid_t clock, timespec* now) {
  static const auto of_libc = reinterpret_cast<int (*)(clockid_t, timespec*)>(::dlsym(RTLD_NEXT, "clock_gettime"));
  return of_libc(clock, now);
}
}  // namespace

extern "C" int clock_gettime(clockid_t clock, timespec* now) noexcept {
  const int result = machine_clock(clock, now);
  if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += ahead_s();
  return result;
}

extern "C" int gettimeofday(timeval* now, void*) noexcept {
  timespec time = {};
  clock_gettime(CLOCK_REALTIME, &time);
  *now = {.tv_sec = time.tv_sec, .tv_usec = time.tv_nsec / 1000};
  return 0;
}

extern "C" time_t time(time_t* now) noexcept {
  timespec time = {};
  clock_gettime(CLOCK_REALTIME, &time);
  if (now) *now = time.tv_sec;
  return time.tv_sec;
}
