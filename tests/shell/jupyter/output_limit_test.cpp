#include "shell/jupyter/output_limit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <regex>
#include <sstream>

namespace lockstep::shell::jupyter {
namespace {

using testing::HasSubstr;

std::string lines(int64_t count) {
  std::string text;
  for (int64_t i = 0; i < count; ++i) text += "line " + std::to_string(i) + "\n";
  return text;
}

TEST(OutputLimit, WhatIsLittleIsShown) {
  OutputLimit limit;
  limit.begin();
  EXPECT_EQ(limit.take(lines(OutputLimit::kMostLines)), lines(OutputLimit::kMostLines));
  EXPECT_FALSE(limit.is_cut());
}

TEST(OutputLimit, TheRestIsKeptInAFileAndItsLastLinesAreShown) {
  OutputLimit limit;
  limit.begin();
  const std::string text = lines(OutputLimit::kMostLines + 100);
  const size_t some = text.find('\n', 1000) + 1;
  EXPECT_EQ(limit.take(text.substr(0, some)), text.substr(0, some));
  EXPECT_EQ(limit.take(text.substr(some)).size() + some, lines(OutputLimit::kMostLines).size());
  EXPECT_TRUE(limit.is_cut());
  EXPECT_EQ(limit.take("last\n"), "");
  const std::string end = limit.end_text();
  EXPECT_THAT(end, HasSubstr("… 81 lines"));
  EXPECT_THAT(end, HasSubstr("line " + std::to_string(OutputLimit::kMostLines + 99) + "\nlast\n"));
  std::smatch path;
  ASSERT_TRUE(std::regex_search(end, path, std::regex("!cp (\\S+) ")));
  std::stringstream kept;
  kept << std::ifstream(path[1].str()).rdbuf();
  EXPECT_EQ(kept.str(), text + "last\n");
}

TEST(OutputLimit, LongLinesAreCutAsWell) {
  OutputLimit limit;
  limit.begin();
  EXPECT_EQ(limit.take(std::string(OutputLimit::kMostBytes + 1, 'x') + "\n"), "");
  EXPECT_TRUE(limit.is_cut());
  EXPECT_LT(limit.end_text().size(), 10'000u);
}

TEST(OutputLimit, EachCellBeginsAnew) {
  OutputLimit limit;
  for (size_t cell = 0; cell < 3 * OutputLimit::kMostFiles; ++cell) {
    limit.begin();
    EXPECT_FALSE(limit.is_cut());
    EXPECT_EQ(limit.take("shown\n"), "shown\n");
    (void)limit.take(lines(OutputLimit::kMostLines + 50));
    EXPECT_TRUE(limit.is_cut());
  }
}

}  // namespace
}  // namespace lockstep::shell::jupyter
