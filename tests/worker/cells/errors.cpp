// Cells that throw.
#include <cstdio>
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
CELL(second_of_three, fine, loop, never);
CELL(library, library);
CELL(odd, odd);
CELL(text, text);
CELL(number, number);
CELL(task, task);
CELL(nested, nested);
