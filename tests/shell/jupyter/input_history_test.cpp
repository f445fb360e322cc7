#include "shell/jupyter/input_history.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

namespace lockstep::shell::jupyter {
namespace {

using nlohmann::json;

class InputHistoryTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "lockstep-test-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  HistoryFile file() const { return HistoryFile((folder_ / "history").string()); }
  static json rows(const InputHistory& history, const json& request) { return history.answer(request)["history"]; }

  std::filesystem::path folder_;
};

TEST_F(InputHistoryTest, TailHasTheNewestAndThoseOfEarlierSessions) {
  (void)file().add("typed before");
  InputHistory history(file());
  history.add(1, "int a = 1;");
  history.add(2, "a");
  EXPECT_EQ(rows(history, {{"hist_access_type", "tail"}, {"n", 2}}), json({{1, 1, "int a = 1;"}, {1, 2, "a"}}));
  EXPECT_EQ(rows(history, {{"hist_access_type", "tail"}, {"n", 9}})[0], json({0, 1, "typed before"}));
  EXPECT_EQ(rows(InputHistory(file()), {{"hist_access_type", "tail"}, {"n", 1}})[0], json({0, 3, "a"}));
}

TEST_F(InputHistoryTest, OutputsComeWhereTheyAreAskedFor) {
  InputHistory history(file());
  history.add(1, "int a = 1;");
  history.add(2, "a");
  history.set_output("1");
  EXPECT_EQ(rows(history, {{"hist_access_type", "tail"}, {"n", 2}, {"output", true}}),
            json({{1, 1, {"int a = 1;", nullptr}}, {1, 2, {"a", "1"}}}));
}

TEST_F(InputHistoryTest, RangeIsOfOneSession) {
  InputHistory history(file());
  for (int k = 1; k <= 4; ++k) history.add(k, "cell " + std::to_string(k));
  const json request = {{"hist_access_type", "range"}, {"session", 0}, {"start", 2}, {"stop", 4}};
  EXPECT_EQ(rows(history, request), json({{1, 2, "cell 2"}, {1, 3, "cell 3"}}));
}

TEST_F(InputHistoryTest, SearchTakesPatterns) {
  InputHistory history(file());
  for (const char* code : {"net", "int net;", "net", "nets", "a\nnet b"}) history.add(1, code);
  EXPECT_EQ(rows(history, {{"hist_access_type", "search"}, {"pattern", "net*"}}).size(), 3u);
  EXPECT_EQ(rows(history, {{"hist_access_type", "search"}, {"pattern", "net*"}, {"unique", true}}).size(), 2u);
  EXPECT_EQ(rows(history, {{"hist_access_type", "search"}, {"pattern", "*net*"}, {"n", 2}}),
            json({{1, 1, "nets"}, {1, 1, "a\nnet b"}}));
  EXPECT_EQ(rows(history, {{"hist_access_type", "search"}, {"pattern", "ne?s"}}).size(), 1u);
}

TEST_F(InputHistoryTest, StrangeRequestsAreAnswered) {
  const InputHistory history(file());
  EXPECT_EQ(history.answer({{"hist_access_type", "dream"}})["status"], "error");
  EXPECT_EQ(rows(history, {{"hist_access_type", "tail"}, {"n", -3}}), json::array());
  EXPECT_EQ(rows(history, {{"hist_access_type", "tail"}, {"n", "many"}}), json::array());
  EXPECT_EQ(rows(history, json::object()), json::array());
}

}  // namespace
}  // namespace lockstep::shell::jupyter
