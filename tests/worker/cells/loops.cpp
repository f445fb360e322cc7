// Cells that go on until they are stopped.
#include <time.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <exception>
#include <thread>

#include "tests/worker/cells/fixture.h"

#line 1 "cell_7.cpp"
static int kept = 1;
static void spin() { for (;;) { POLL(); } }
static void stubborn_spin() { for (;;) {} }
static void spin_without_mercy() {
  for (;;) {
    POLL();
    try { for (;;) { POLL(); } } catch (const std::exception&) { ++kept; }
  }
}
static void sleep_for() { std::this_thread::sleep_for(std::chrono::hours(1)); }
static void sleep_until() { std::this_thread::sleep_until(std::chrono::system_clock::now() + std::chrono::hours(1)); }
static void posix_sleeps() { sleep(0); usleep(1); timespec t{0, 1}; nanosleep(&t, nullptr); sleep(1000); }
static void show_kept() { printf("%d", kept); }
struct Unwound { ~Unwound() { printf("unwound "); } };
static void unwinds() { Unwound u; for (;;) { POLL(); } }
static void rethrows() { try { for (;;) { POLL(); } } catch (...) { throw 5; } }
static void loop_until_asked() { while (!__atomic_load_n(&lockstep_poll_requested, __ATOMIC_RELAXED)) {} }
static void polls_twice() { for (int i = 0; i < 2; ++i) { POLL(); } }
static void lets_nothing_out() noexcept { loop_until_asked(); polls_twice(); printf("survived "); }
struct Slow { ~Slow() { loop_until_asked(); polls_twice(); usleep(1); printf("destroyed "); } };
static void guarded() { printf("begun "); lets_nothing_out(); for (;;) { POLL(); } }
static void destructor() { printf("begun "); { Slow slow; } for (;;) { POLL(); } }
CELL(guarded, guarded);
CELL(destructor, destructor);
CELL(spin, spin);
CELL(stubborn, stubborn_spin);
CELL(merciless, spin_without_mercy);
CELL(sleep_for, sleep_for);
CELL(sleep_until, sleep_until);
CELL(posix_sleeps, posix_sleeps);
CELL(show_kept, show_kept);
CELL(unwinds, unwinds);
CELL(rethrows, rethrows);
