// An object as cells have it: functions, data with addresses, exceptions, virtual functions; nothing that needs a linker.
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#define FIRST_COUNT 40
#include "tests/compiler/objects/counted.h"

struct Shape {
  virtual ~Shape() = default;
  virtual int sides() const { return 0; }
};
struct Square : Shape {
  int sides() const override { return 4; }
};

int number = 5;
int zeros[100];
int* const to_number = &number;
const char* const names[] = {"first", "second"};

static int hidden_from_others(int value) {
  if (value > 3) throw std::out_of_range("more than " + std::to_string(value - 1));
  return value;
}

extern "C" int caught(int value) {
  try {
    const std::vector<int> values(static_cast<size_t>(value), 2);
    return hidden_from_others(value) + values.at(0);
  } catch (const std::exception& error) {
    return -static_cast<int>(std::string(error.what()).size());
  }
}
extern "C" int sides() {
  const Square square;
  const Shape* shape = &square;
  return dynamic_cast<const Square*>(shape) ? shape->sides() : -1;
}
extern "C" int data(int index) { return *to_number + zeros[index] + names[1][0]; }
extern "C" int count() { return counted(); }
extern "C" int absolute(int value) { return std::abs(value) + std::atoi("7"); }
