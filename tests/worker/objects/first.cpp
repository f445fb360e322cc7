// An object as cells have it, which is loaded first.
#include <stdexcept>
#include <string>

#include "tests/worker/objects/counted.h"

extern "C" {
extern const char* const entry_of_first = "first";

int shared_value = 5;
int zeros_of_first[5000];
int* const to_zeros = &zeros_of_first[4999];

int thrower(int value) {
  if (value > 0) throw std::out_of_range("the value is " + std::to_string(value));
  return value;
}
int pass_on(int (*function)(int), int value) {
  const std::string kept(40, 'x');
  return function(value) + static_cast<int>(kept.size());
}
/// Returns the length of what() where `function` throws.
int length_of_error(int (*function)(int), int value) {
  try {
    return function(value);
  } catch (const std::exception& error) {
    return static_cast<int>(std::string(error.what()).size());
  }
}

int which() { return 1; }
int count_in_first() { return counted(); }
int of_library();
__attribute__((weak)) int of_nobody();
int has_nobody() { return of_nobody ? of_nobody() : *to_zeros - 1; }
}
