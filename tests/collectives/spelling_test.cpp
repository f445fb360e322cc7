// Messages name what their reader types, in C++ and in Python.
#include "collectives/watch/spelling.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Spelling, OfCppUnlessItIsSet) {
  EXPECT_EQ(language(), Language::cpp);
  EXPECT_EQ(dist_name("all_reduce"), "dist::all_reduce");
  EXPECT_EQ(inspect_name("replay"), "inspect::replay");
  EXPECT_EQ(torch_name("empty_like"), "torch::empty_like");
  EXPECT_EQ(option_text("batch_size", "N"), "--batch-size N");
  EXPECT_STREQ(spelling::kSeed.text(), "set_seed(n)");
}

TEST(Spelling, OfPython) {
  set_language(Language::python);
  EXPECT_EQ(dist_name("all_reduce"), "torch.distributed.all_reduce");
  EXPECT_EQ(inspect_name("watch_grads"), "lockstep.watch_grads");
  EXPECT_EQ(inspect_name("replay"), "lockstep.nan_trace");
  EXPECT_EQ(inspect_name("lockstep_ranks"), "lockstep.first_difference");
  EXPECT_EQ(torch_name("empty_like"), "torch.empty_like");
  EXPECT_EQ(option_text("batch_size", "N"), "batch_size=N");
  EXPECT_STREQ(spelling::kSeed.text(), "torch.manual_seed(n)");
  set_language(Language::cpp);
}

}  // namespace
}  // namespace lockstep
