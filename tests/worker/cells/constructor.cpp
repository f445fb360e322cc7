// A library whose constructor waits for a thread that calls a function of the C library.
#include <sys/file.h>

#include <thread>

#include "fixture.h"

static const bool kStarted = [] {
  std::thread([] { ::flock(0, LOCK_SH | LOCK_NB); }).join();
  return true;
}();

static void nothing() {}
CELL(nothing, nothing);
