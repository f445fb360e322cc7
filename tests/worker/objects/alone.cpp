// An object that needs nothing; tests load it many times.
extern "C" {
extern const char* const entry_of_alone = "alone";
int of_alone(int value) {
  if (value > 0) throw value;
  return 7;
}
}
