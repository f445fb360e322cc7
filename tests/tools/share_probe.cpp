// Tests for run_share.py to run: they do what PROBE_DOES says, a list of words.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

namespace {

bool does(const std::string& word) {
  const char* words = std::getenv("PROBE_DOES");
  return words && std::string(words).find(word) != std::string::npos;
}

TEST(Probe, First) { std::printf("without a newline"); }

TEST(Probe, Second) {
  if (does("dies")) raise(SIGKILL);
  if (does("exits")) _exit(3);
  if (does("hangs")) pause();
  if (does("fails")) ADD_FAILURE();
}

TEST(Probe, Third) {
  const char* mark = std::getenv("PROBE_MARK");
  if (!does("is_unsteady") || std::ifstream(mark)) return;
  std::ofstream(mark) << "it has run";
  ADD_FAILURE() << "the first time";
}

TEST(Probe, Fourth) {
  if (does("skips")) GTEST_SKIP();
}

class Probes : public ::testing::TestWithParam<int> {};
TEST_P(Probes, HaveParameters) { EXPECT_TRUE(GetParam() != 2 || !does("wrong_parameter")); }
INSTANTIATE_TEST_SUITE_P(Of, Probes, ::testing::Values(1, 2));

}  // namespace
