#include "shell/detached/mark_filter.h"

#include <gtest/gtest.h>

namespace lockstep::shell {
namespace {

constexpr auto kLate = MarkFilter::Clock::time_point::max();

TEST(MarkFilter, LeavesOutWhatIsBeforeTheMark) {
  MarkFilter filter;
  EXPECT_EQ(filter.pass("one"), "one");
  const std::string mark = filter.begin(kLate);
  EXPECT_EQ(filter.pass("for nobody"), "");
  EXPECT_EQ(filter.pass("nor this" + mark.substr(0, 7)), "");
  EXPECT_EQ(filter.pass(mark.substr(7) + "two"), "two");
  EXPECT_EQ(filter.pass("three"), "three");
}

TEST(MarkFilter, LeavesOutTheMarkAloneOnceItIsGivenUp) {
  MarkFilter filter;
  const std::string mark = filter.begin(kLate);
  EXPECT_EQ(filter.pass("for nobody"), "");
  filter.give_up();
  EXPECT_EQ(filter.pass("an editor"), "an editor");
  EXPECT_EQ(filter.pass("its end" + mark + "a prompt"), "its enda prompt");
  EXPECT_EQ(filter.pass(mark), mark);
}

TEST(MarkFilter, TakesNothingBackOfAMarkThatHasBegun) {
  MarkFilter filter;
  const std::string mark = filter.begin(kLate);
  filter.give_up();
  EXPECT_EQ(filter.pass("its end" + mark.substr(0, 9)), "its end" + mark.substr(0, 9));
  EXPECT_EQ(filter.pass(mark.substr(9) + "a prompt"), "a prompt");
}

}  // namespace
}  // namespace lockstep::shell
