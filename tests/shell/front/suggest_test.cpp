#include "shell/text/suggest.h"

#include <gtest/gtest.h>

using namespace lockstep::shell;

TEST(Suggest, CountsEditsAndSwaps) {
  EXPECT_EQ(edit_distance("verify", "verify"), 0u);
  EXPECT_EQ(edit_distance("verfiy", "verify"), 1u);
  EXPECT_EQ(edit_distance("verif", "verify"), 1u);
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("VERIFY", "verify"), 0u);
}

TEST(Suggest, NamesWhatIsNear) {
  const std::vector<std::string> names = {"rank", "reset", "restart", "dist_status", "history", "help"};
  EXPECT_EQ(nearest("rnak", names), "rank");
  EXPECT_EQ(nearest("dist_statsu", names), "dist_status");
  EXPECT_EQ(nearest("hist", names), "history");
  EXPECT_EQ(nearest("status", {"stat", "dist_status"}), "stat");
  EXPECT_EQ(did_you_mean("rnak", names, "%"), "; did you mean %rank?");
}

TEST(Suggest, SaysNothingWhereNothingIsNear) {
  EXPECT_EQ(nearest("frobnicate", {"rank", "reset"}), std::nullopt);
  EXPECT_EQ(did_you_mean("frobnicate", {"rank"}), "");
  EXPECT_EQ(nearest("x", {}), std::nullopt);
}
