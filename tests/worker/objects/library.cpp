// A library for the dynamic loader, which uses what first.cpp defines.
extern "C" {
extern int shared_value;
int thrower(int value);
int pass_on(int (*function)(int), int value);

int which() { return 3; }
int which_for_library() { return which(); }
int of_library() { return 100 + shared_value; }
int of_library_too() { return 4; }
int throw_through_library(int value) { return pass_on(thrower, value); }
int call_from_library(int (*function)(int), int value) { return function(value); }
}
