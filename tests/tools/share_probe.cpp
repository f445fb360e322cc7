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

TEST(Probe, First) {
  std::printf("[ RUN      ] Of.AProgramThatItStarts\n[       OK ] Of.AProgramThatItStarts (0 ms)\nwithout a newline");
}

TEST(Probe, Second) {
  if (does("dies")) raise(SIGKILL);
  if (does("exits")) _exit(3);
  if (does("hangs")) pause();
  if (does("fails")) ADD_FAILURE();
}

bool first_time() {
  const char* mark = std::getenv("PROBE_MARK");
  if (std::ifstream(mark)) return false;
  std::ofstream(mark) << "it has run";
  return true;
}

TEST(Probe, Third) {
  if (does("is_unsteady") && first_time()) ADD_FAILURE() << "the first time";
}

TEST(Probe, Fourth) {
  if (does("skips")) GTEST_SKIP();
  if (does("ends_badly")) std::atexit([] { _exit(66); });  // as a sanitizer that has found something
}

class Probes : public ::testing::TestWithParam<int> {
 protected:
  static void SetUpTestSuite() {  // between two tests
    if (does("leaves")) _exit(0);
    if (does("ends_once") && first_time()) _exit(3);
  }
};
TEST_P(Probes, HaveParameters) { EXPECT_TRUE(GetParam() != 2 || !does("wrong_parameter")); }
INSTANTIATE_TEST_SUITE_P(Of, Probes, ::testing::Values(1, 2));

}  // namespace
