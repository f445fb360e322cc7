// Defines a function of simple.cpp again, with another value.
#define FIRST_COUNT 1000
#include "tests/compiler/objects/counted.h"

extern "C" int count_again() { return counted(); }
