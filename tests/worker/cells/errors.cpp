// Cells that throw.
#include <cstdio>
#include <exception>
#include <future>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/worker/cells/fixture.h"

#line 1 "cell_7.cpp"
inline namespace __cell_7 {
struct Mishap : std::runtime_error { using std::runtime_error::runtime_error; };
struct Odd { int x; };
}
static void fine() { printf("first "); }
static void never() { printf("never"); }
__attribute__((noinline)) static void train(int step) { if (step == 3) throw Mishap("diverged at step 3"); }
static void loop() {
  for (int i = 0; i < 5; ++i)
    train(i);
}
static void library() { std::vector<int> v(2); (void)v.at(5); }
static void odd() { throw Odd{1}; }
static void text() { throw "just text"; }
static void number() { throw 42; }
static void task() {
  auto f = std::async(std::launch::async, [] { throw Mishap("in a task"); });
  f.get();
}
static void nested() {
  try { throw std::runtime_error("inner"); }
  catch (...) { std::throw_with_nested(Mishap("outer")); }
}
static void nested_in_nothing() { std::throw_with_nested(Mishap("outer")); }
static void again() { throw; }
static void null_pointer() { std::rethrow_exception(nullptr); }
static void in_handler() {
  try { throw Mishap("first"); }
  catch (...) { throw; }
}
struct Silent : std::exception { const char* what() const noexcept override { return nullptr; } };
static void silent() { throw Silent(); }
static void deep() {
  for (std::exception_ptr last;;) {
    static int depth = 0;
    try {
      if (last) try { std::rethrow_exception(last); } catch (...) { std::throw_with_nested(Mishap("m")); }
      throw Mishap("m");
    } catch (...) { last = std::current_exception(); }
    if (++depth == 3000) std::rethrow_exception(last);
  }
}
CELL(second_of_three, fine, loop, never);
CELL(library, library);
CELL(odd, odd);
CELL(text, text);
CELL(number, number);
CELL(task, task);
CELL(nested, nested);
CELL(nested_in_nothing, nested_in_nothing);
CELL(again, again);
CELL(null_pointer, null_pointer);
CELL(in_handler, in_handler);
CELL(silent, silent);
CELL(deep, deep);
