// An object as cells have it, which uses the first one and a library of the dynamic loader.
#define FIRST_COUNT 1000
#include "tests/worker/objects/counted.h"

extern "C" {
extern const char* const entry_of_second = "second";

extern int shared_value;
int thrower(int value);
int pass_on(int (*function)(int), int value);
int length_of_error(int (*function)(int), int value);
int of_library();

int which() { return 2; }
int which_for_second() { return which(); }
int of_library_too() { return 2; }
int of_library_for_second() { return of_library_too(); }
int count_in_second() { return counted(); }
int use_library() { return of_library() + ++shared_value; }
int error_through_two_objects(int value) {
  return length_of_error([](int inner) { return pass_on(thrower, inner); }, value);
}
}
