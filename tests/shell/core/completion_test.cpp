#include "shell/session/completion.h"

#include "shell/session/inspection.h"
#include "tests/shell/core/session_fixture.h"

namespace lockstep::shell {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Not;

class Completing : public SessionTest {
 protected:
  std::vector<std::string> texts(const std::string& text) {
    if (!session_) session_ = std::make_unique<Session>(SessionOptions(), recorder_);
    answer_ = complete_cell(*session_, text, static_cast<int64_t>(text.size()));
    std::vector<std::string> result;
    for (const auto& each : answer_.completions) result.push_back(each.text);
    return result;
  }
  std::string replaced(const std::string& text) const {
    return text.substr(static_cast<size_t>(answer_.begin), static_cast<size_t>(answer_.end - answer_.begin));
  }

  protocol::Completions answer_;
};

TEST_F(Completing, MagicsByTheirKind) {
  EXPECT_THAT(texts("%dist_s"), ElementsAre("%dist_shutdown", "%dist_status"));
  EXPECT_EQ(replaced("%dist_s"), "%dist_s");
  EXPECT_EQ(answer_.completions[0].kind, "magic");
  EXPECT_FALSE(answer_.completions[0].detail.empty());
  EXPECT_THAT(texts("%tim"), ElementsAre("%time", "%time_sync", "%timeit", "%timeline", "%%time", "%%timeit"));
  EXPECT_THAT(texts("%%ti"), ElementsAre("%%time", "%%timeit"));
  EXPECT_THAT(texts("// why\n%%rank 0\n%%ti"), ElementsAre("%%time", "%%timeit"));
  EXPECT_THAT(texts("%sync\n%ran"), ElementsAre("%rank", "%ranks"));
  EXPECT_FALSE(session_->started()) << "magics need no session";
}

TEST_F(Completing, OptionsChoicesAndPathsOfMagics) {
  EXPECT_THAT(texts("%verify net --m"), ElementsAre("--method"));
  EXPECT_THAT(texts("%verify net --method "), ElementsAre("fingerprint", "broadcast", "all_gather", "all_reduce"));
  EXPECT_THAT(texts("%verify net --method b"), ElementsAre("broadcast"));
  EXPECT_THAT(texts("%quiet o"), ElementsAre("on", "off"));
  EXPECT_THAT(texts("%verify net --method=b"), ElementsAre("broadcast"));
  EXPECT_EQ(replaced("%verify net --method=b"), "b");
  EXPECT_THAT(texts("%dist_mode -"), ElementsAre("-e", "--enable", "-d", "--disable"));
  EXPECT_THAT(texts("%%lockstep --s"), ElementsAre("--self"));
  EXPECT_THAT(texts("%dist_init -"), Contains("--num-processes"));
  EXPECT_THAT(texts("%who v"), ElementsAre("variable"));
  EXPECT_THAT(texts("%help lsm"), ElementsAre("lsmagic"));
  EXPECT_THAT(texts("%sync "), IsEmpty());
  EXPECT_THAT(texts("%no_such "), IsEmpty());
  EXPECT_THAT(texts("%%writefile x\n%ra"), IsEmpty()) << "text of any kind follows";

  std::ofstream(runtime_ / "data file.pt") << "x";
  std::ofstream(runtime_ / "script.cpp") << "x";
  std::filesystem::create_directory(runtime_ / "scripts");
  EXPECT_THAT(texts("%load " + runtime_.string() + "/scr"),
              ElementsAre(runtime_.string() + "/script.cpp", runtime_.string() + "/scripts/"));
  EXPECT_THAT(texts("%cd " + runtime_.string() + "/scr"), ElementsAre(runtime_.string() + "/scripts/"));
  EXPECT_THAT(texts("!cat " + runtime_.string() + "/scrip"), Contains(runtime_.string() + "/script.cpp"));
  EXPECT_THAT(texts("auto t = load(\"" + runtime_.string() + "/scri"), Contains(runtime_.string() + "/script.cpp"));
  EXPECT_THAT(texts("f('\"', \"" + runtime_.string() + "/scri"), Contains(runtime_.string() + "/script.cpp"));
  EXPECT_THAT(texts("%load /no/such/folder/"), IsEmpty());
}

TEST_F(Completing, RankSetsOfTheSession) {
  EXPECT_THAT(texts("%%rank "), IsEmpty());
  start(3);
  EXPECT_THAT(texts("%%rank "), ElementsAre("all", "0-2", "0", "1", "2"));
  EXPECT_THAT(texts("%rank [0,"), ElementsAre("0", "1", "2"));
  EXPECT_EQ(replaced("%rank [0,"), "");
  EXPECT_THAT(texts("%stack 1"), ElementsAre("1"));
  EXPECT_THAT(texts("%grads net --ranks a"), ElementsAre("all"));
}

TEST_F(Completing, CppIsAskedOfTheCompilerWithoutTheMagics) {
  start(2);
  EXPECT_THAT(texts("pri"), ElementsAre("print", "print_err"));
  EXPECT_THAT(texts("%rank 0 pri"), ElementsAre("print", "print_err"));
  EXPECT_THAT(texts("%verify pri"), ElementsAre("print", "print_err"));
  EXPECT_THAT(texts("?pri"), ElementsAre("print", "print_err"));
  EXPECT_THAT(texts("%%rank 0\nint a;\n%sync\necho_"), Contains("        \nint a;\n     \necho_"));
  EXPECT_THAT(texts("f(1,\n%x echo_"), Contains("f(1,\n%x echo_")) << "no statement begins there";
  EXPECT_THAT(texts(std::string(100, '(')), Not(IsEmpty()));
}

TEST_F(Completing, SignaturesOfTheCall) {
  session_ = std::make_unique<Session>(SessionOptions(), recorder_);
  EXPECT_THAT(signatures_in_cell(*session_, "f(", 2), IsEmpty()) << "no session is started for them";
  session_.reset();
  start(2);
  const auto found = signatures_in_cell(*session_, "f(1, ", 5);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].active, 1);
  EXPECT_THAT(signatures_in_cell(*session_, "%verify f(", 10), IsEmpty());
}

TEST_F(Completing, WhatStandsAtAnOffset) {
  start(2);
  const auto at = [&](const std::string& text, const std::string& before) {
    return describe_at(*session_, text, static_cast<int64_t>(text.find(before) + before.size()));
  };
  EXPECT_EQ(at("a = net->fc[0].weight + 1", "weig").data["expression"], "net->fc[0].weight");
  EXPECT_EQ(at("torch::zeros(", "zeros").data["expression"], "torch::zeros");
  EXPECT_TRUE(at("%rank 0", "%ra").text.starts_with("%rank [SPEC"));
  EXPECT_TRUE(at("%%rank 0", "%%rank").text.starts_with("%rank [SPEC"));
  EXPECT_EQ(at("f(1, ", "1, ").text, "int f(int a, int b)\nint f(char c)");
  EXPECT_EQ(at("no_f(1, ", "1, ").data["expression"], "no_f");
  EXPECT_FALSE(at("  ;", ";").found);
  EXPECT_FALSE(describe(*session_, "no_such").found);
  EXPECT_THAT(describe(*session_, "net", true).text, testing::HasSubstr("source"));
}

}  // namespace
}  // namespace lockstep::shell
