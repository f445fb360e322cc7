// Defines a function of simple.cpp again, with another value.
inline int counted() {
  static int calls = 1000;
  return ++calls;
}
extern "C" int count_again() { return counted(); }
