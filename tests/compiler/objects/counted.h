// A function that two objects define, with another value each (FIRST_COUNT).
#pragma once

inline int counted() {
  static int calls = FIRST_COUNT;
  return ++calls;
}
