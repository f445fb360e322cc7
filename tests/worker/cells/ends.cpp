// Cells that end their rank.
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <thread>

#include "tests/worker/cells/fixture.h"

#line 1 "cell_7.cpp"
static volatile int zero = 0;
static int* volatile null = nullptr;
static void write_null() { *null = 1; }
static void say_then_crash() { printf("last words"); write_null(); }
static void divide() { zero = 7 / zero; }
static void illegal() { __builtin_trap(); }
static void bus() { raise(SIGBUS); }
static int deep(volatile int* p) { volatile int here[64]; here[0] = *p; return deep(here) + here[1]; }
static void overflow() { zero = deep(&zero); }
static void call_null() { void (*volatile f)() = nullptr; f(); }
static void aborts() { abort(); }
static void terminates() { std::terminate(); }
static void throws_in_noexcept() noexcept { throw std::runtime_error("boom"); }
static void throws_in_thread() { std::thread([] { throw std::runtime_error("bang"); }).join(); }
static void exits() { exit(3); }
static void exits_quickly() { _exit(4); }
static void quick_exits() { quick_exit(5); }
static void exits_with_handler() { atexit([] { printf("handler ran"); }); printf("before "); exit(0); }
static void crash_in_thread() { std::thread([] { *null = 1; }).join(); }
static void exits_thread() { pthread_exit(nullptr); }
static void kills_itself() { kill(getpid(), SIGKILL); }

CELL(say_then_crash, say_then_crash);
CELL(divide, divide);
CELL(illegal, illegal);
CELL(bus, bus);
CELL(overflow, overflow);
CELL(call_null, call_null);
CELL(aborts, aborts);
CELL(terminates, terminates);
CELL(throws_in_noexcept, throws_in_noexcept);
CELL(throws_in_thread, throws_in_thread);
CELL(exits, exits);
CELL(exits_quickly, exits_quickly);
CELL(quick_exits, quick_exits);
CELL(exits_with_handler, exits_with_handler);
CELL(crash_in_thread, crash_in_thread);
CELL(exits_thread, exits_thread);
CELL(kills_itself, kills_itself);
