// Variables that are too far from the code for a distance of 32 bits.
extern "C" int far_away() {
  static char large[2300000000];
  static char behind[16];
  large[5] = 1;
  behind[3] = 9;
  return behind[3];
}
