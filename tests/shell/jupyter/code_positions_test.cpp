#include "shell/jupyter/code_positions.h"

#include <gtest/gtest.h>

namespace lockstep::shell::jupyter {
namespace {

TEST(CodePositions, CharactersOfSeveralBytesCountOnce) {
  const std::string text = "é🙂ab";
  EXPECT_EQ(byte_of(text, 0), 0);
  EXPECT_EQ(byte_of(text, 1), 2);
  EXPECT_EQ(byte_of(text, 2), 6);
  EXPECT_EQ(byte_of(text, 4), 8);
  EXPECT_EQ(character_of(text, 6), 2);
  EXPECT_EQ(character_of(text, 8), 4);
}

TEST(CodePositions, PositionsOutsideOfTheTextAreItsEnds) {
  EXPECT_EQ(byte_of("ab", 9), 2);
  EXPECT_EQ(byte_of("ab", -1), 1);
  EXPECT_EQ(byte_of("ab", -9), 0);
  EXPECT_EQ(byte_of("", 1), 0);
  EXPECT_EQ(character_of("ab", 9), 2);
  EXPECT_EQ(character_of("ab", -1), 0);
}

}  // namespace
}  // namespace lockstep::shell::jupyter
