// A function that two objects define, with another value each (FIRST_COUNT).
#pragma once
#ifndef FIRST_COUNT
#define FIRST_COUNT 40
#endif

inline int counted() {
  static int calls = FIRST_COUNT;
  return ++calls;
}
