// What a process that takes the place of a lost rank runs again, and what not.
#include "shell/cells/past_cells.h"

#include <gtest/gtest.h>

namespace lockstep::shell {
namespace {

using Texts = std::vector<std::string>;

class PastCellsTest : public ::testing::Test {
 protected:
  /// Runs a cell whose steps begin at these lines and define these names, on two ranks.
  void run(int64_t cell, const std::string& text, std::vector<protocol::Step> steps, std::vector<int64_t> meetings = {},
           std::optional<int64_t> steps_done = {}) {
    const auto count = static_cast<int64_t>(steps.size());
    past_.sent(kBoth, cell,
               {.cell = cell, .name = "", .entry = "", .steps = std::move(steps), .ranks = kBoth, .file = {}}, "",
               text);
    past_.begins(kBoth, {.cell = cell, .number = cell});
    for (const int rank : kBoth)
      past_.done(rank, {.cell = cell,
                        .steps_done = steps_done.value_or(count),
                        .error = {},
                        .collectives = {},
                        .meetings = meetings});
  }
  std::vector<std::string> left_out(int rank = 1) {
    std::vector<std::string> result;
    for (const LeftOutStep& step : past_.replay(rank).left_out)
      result.push_back(std::to_string(step.number) + ":" + std::to_string(step.line) + " " + step.why);
    return result;
  }

  const RankSet kBoth{0, 1};
  PastCells past_;
};

TEST_F(PastCellsTest, WhatMetNobodyRunsAgainInOrder) {
  run(1, "int a = 1;", {{.line = 1, .names = {"a"}}});
  run(2, "int b = a;", {{.line = 1, .names = {"b"}}});
  const Replay replay = past_.replay(1);
  EXPECT_TRUE(replay.left_out.empty());
  ASSERT_EQ(replay.actions.size(), 4u);
  EXPECT_EQ(std::get<const PastObject*>(replay.actions[0])->load.cell, 1);
  EXPECT_EQ(std::get<Replay::Cell>(replay.actions[1]).message.cell, 1);
  EXPECT_TRUE(std::get<Replay::Cell>(replay.actions[3]).message.again);
}

TEST_F(PastCellsTest, AStepThatMetOthersIsLeftOutWithWhatNeedsItsName) {
  run(1, "auto loss = reduced();\nint a = 1;", {{.line = 1, .names = {"loss"}}, {.line = 2, .names = {"a"}}}, {0});
  run(2, "auto twice = loss * 2;\nauto b = a;", {{.line = 1, .names = {"twice"}}, {.line = 2, .names = {"b"}}});
  EXPECT_EQ(left_out(), (Texts{"1:1 it met other ranks", "2:1 it needs loss of cell 1"}));
  EXPECT_EQ(past_.replay(1).lost, (std::map<int64_t, Texts>{{1, {"loss"}}, {2, {"twice"}}}));
}

TEST_F(PastCellsTest, AVariableWithAConstantIsThere) {
  run(1, "auto loss = reduced();\nint calls = 0;", {{.line = 1, .names = {"loss", "calls"}}}, {0});
  run(2, "++calls;", {{.line = 1, .names = {}}});
  EXPECT_EQ(left_out(), Texts{"1:1 it met other ranks"});
  EXPECT_EQ(past_.replay(1).lost, (std::map<int64_t, Texts>{{1, {"loss"}}}));
}

TEST_F(PastCellsTest, AFunctionCarriesTheNameOn) {
  run(1, "auto loss = reduced();", {{.line = 1, .names = {"loss"}}}, {0});
  run(2, "double f() { return loss; }\ndouble g() { return 1; }", {});
  run(3, "f();\ng();", {{.line = 1, .names = {}}, {.line = 2, .names = {}}});
  EXPECT_EQ(left_out(), (Texts{"1:1 it met other ranks", "3:1 it needs f of cell 2"}));
  EXPECT_EQ(past_.replay(1).lost, (std::map<int64_t, Texts>{{1, {"loss"}}, {2, {"f"}}})) << "f would compute with it";
}

TEST_F(PastCellsTest, AnOverloadDoesNotTakeThePlaceOfAFunction) {
  run(1, "auto loss = reduced();", {{.line = 1, .names = {"loss"}}}, {0});
  run(2, "double f() { return loss; }", {});
  run(3, "double f(int) { return 1; }\ndouble f();", {});
  run(4, "f();", {{.line = 1, .names = {}}});
  run(5, "double f() { return 2; }", {});
  run(6, "f();", {{.line = 1, .names = {}}});
  EXPECT_EQ(left_out(), (Texts{"1:1 it met other ranks", "4:1 it needs f of cell 2"}));
  EXPECT_EQ(past_.replay(1).lost.count(5), 0u);
}

TEST_F(PastCellsTest, WhateverIsDefinedCarriesTheNameOn) {
  const struct {
    const char *definition, *use, *name;
  } cases[] = {
      {"#include <cmath>\n#define TWICE (2 * loss)", "g(TWICE);", "TWICE"},
      {"namespace a::b {\ndouble f() { return loss; }\nint g() { return 1; }\n}", "a::b::f();", "a::b::f"},
      {"inline namespace v1 { double f() { return loss; } }", "f();", "v1::f"},
      {"namespace { double f() { return loss; } }", "f();", "f"},
      {"extern \"C\" double f() { return loss; }", "f();", "f"},
      {"extern \"C\" {\ndouble f() { return loss; }\n}", "f();", "f"},
      {"A operator+(A a, A b) { return {a.v + b.v + loss}; }", "g(x + y);", "operator+"},
      {"double operator\"\"_q(long double x) { return x * loss; }", "g(3.0_q);", "operator\"\"_q"},
      {"void Net::f() { loss; }", "Net().g();", "Net"},
      {"Net::Net() : v(loss) {}", "Net().g();", "Net"},
      {"template <> double f<int>() { return loss; }", "f<int>();", "f"},
      {"template <> struct std::hash<A> { double v = loss; };", "std::f();", "std"},
      {"struct S { double f() { return loss; } }; int b = 1;", "S().f();", "S"},
  };
  for (const auto& [definition, use, name] : cases) {
    past_ = PastCells();
    run(1, "auto loss = reduced();", {{.line = 1, .names = {"loss"}}}, {0});
    run(2, definition, {});
    run(3, std::string("f2();\n") + use, {{.line = 1, .names = {}}, {.line = 2, .names = {}}});
    EXPECT_EQ(left_out(), (Texts{"1:1 it met other ranks", std::string("3:2 it needs ") + name + " of cell 2"}));
    EXPECT_EQ(past_.replay(1).lost[2], Texts{name}) << definition;
  }
}

TEST_F(PastCellsTest, MembersParametersAndLocalVariablesAreOtherNames) {
  run(1, "auto loss = reduced();", {{.line = 1, .names = {"loss"}}}, {0});
  for (const char* const text :
       {"double f(A<B> loss) { return loss; }", "double f(const A& loss, double loss2 = 1) { return loss; }",
        "double f() { auto& loss = g(); return loss; }", "struct f { A loss; A get() { return loss; } };",
        "A f() { return g().loss + g()->loss; }"})
    run(2, text, {});
  EXPECT_EQ(past_.replay(1).lost, (std::map<int64_t, Texts>{{1, {"loss"}}}));
  for (const char* const text :
       {"double f(double x = loss) { return x; }", "double f() { { A loss; } return loss; }",
        "double f() { A x = loss; A loss; }", "double f() { A loss; return ::loss; }", "loss f(const loss) {}"}) {
    run(3, text, {});
    EXPECT_EQ(past_.replay(1).lost[3], Texts{"f"}) << text;
    past_.dropped(3);
  }
}

TEST_F(PastCellsTest, WhatHasNoNameMayBeUsedAnywhere) {
  for (const char* const text :
       {"template <typename T> requires C<T> double f(T) { return loss; }", "double (*f)() = &loss;"}) {
    past_ = PastCells();
    run(1, "auto loss = reduced();", {{.line = 1, .names = {"loss"}}}, {0});
    run(2, text, {});
    run(3, "g();", {{.line = 1, .names = {}}});
    EXPECT_EQ(left_out().back(), "3:1 it may use what cell 2 defines without a name");
  }
}

TEST_F(PastCellsTest, AMemberThatIsDefinedLaterTakesItsClassWithIt) {
  run(1, "auto loss = reduced();\nstruct Net { void f(); void g(); };", {{.line = 1, .names = {"loss"}}}, {0});
  run(2, "void Net::f() { loss; }", {});
  run(3, "void Net::g() {}", {});
  run(4, "Net net;", {{.line = 1, .names = {"net"}}});
  EXPECT_EQ(left_out().back(), "4:1 it needs Net of cell 2");
  EXPECT_EQ(past_.replay(1).lost[1], (Texts{"loss", "Net"}));
}

TEST_F(PastCellsTest, VariablesOfANamespaceHaveTheirStepsAtItsLine) {
  run(1, "namespace a {\nauto loss = reduced();\ndouble f() { return loss; }\nint one = 1;\n}\nint b = g();",
      {{.line = 1, .names = {"a::loss", "a::one"}}, {.line = 6, .names = {"b"}}}, {0});
  run(2, "a::f();\nb;", {{.line = 1, .names = {}}, {.line = 2, .names = {}}});
  EXPECT_EQ(left_out(), (Texts{"1:1 it met other ranks", "2:1 it needs a::f of cell 1"}));
}

TEST_F(PastCellsTest, AConstantIsThereBeforeWhatFollowsIt) {
  run(1, "int width = reduced();", {{.line = 1, .names = {"width"}}}, {0});
  run(2, "int width = 3;\nNet net(width, 2);", {{.line = 2, .names = {"net"}}});
  run(3, "int width = 3; Net other(width, 2); use(other);",
      {{.line = 1, .names = {"other"}}, {.line = 1, .names = {}}});
  EXPECT_EQ(left_out(), Texts{"1:1 it met other ranks"});
}

TEST_F(PastCellsTest, StepsOfALineAreThoseOfTheirItems) {
  run(1, "int a = read(), c = read(); reduced(); int tail = 5; int b = f();",
      {{.line = 1, .names = {}},
       {.line = 1, .names = {"a", "c"}},
       {.line = 1, .names = {"tail"}},
       {.line = 1, .names = {"b"}}},
      {2});
  run(2, "auto lost = reduced(); double f() { return lost; }; auto d = f(); auto e = tail;",
      {{.line = 1, .names = {"lost"}}, {.line = 1, .names = {"d"}}, {.line = 1, .names = {"e"}}}, {0});
  run(3, "auto lost = make(); use(lost);", {{.line = 1, .names = {"lost"}}, {.line = 1, .names = {}}});
  EXPECT_EQ(left_out(), (Texts{"1:1 it met other ranks", "2:1 it met other ranks", "2:1 it needs f of cell 2"}));
  EXPECT_EQ(past_.replay(1).lost, (std::map<int64_t, Texts>{{2, {"lost", "f", "d"}}}));
}

TEST_F(PastCellsTest, ItemsOfALineWhoseStepsDoNotFitAreOne) {
  run(1, "auto loss = reduced();", {{.line = 1, .names = {"loss"}}}, {0});
  run(2, "odd(); odd(loss); int b = f();", {{.line = 1, .names = {"b"}}});
  EXPECT_EQ(left_out().back(), "2:1 it needs loss of cell 1");
  EXPECT_EQ(past_.replay(1).lost[2], Texts{"b"});
}

TEST_F(PastCellsTest, AValueThatIsNotAssignedAgainIsMissing) {
  run(1, "std::vector<int> v;\nv = reduced();\nauto last = v[1];",
      {{.line = 1, .names = {"v"}}, {.line = 2, .names = {}}, {.line = 3, .names = {"last"}}}, {1});
  run(2, "int f() { return v[1]; }\nv = {1, 2};", {{.line = 2, .names = {}}});
  run(3, "auto first = v[0] + f();", {{.line = 1, .names = {"first"}}});
  run(4, "v = throws();", {{.line = 1, .names = {}}}, {}, 0);
  run(5, "v == v;", {{.line = 1, .names = {}}});
  EXPECT_EQ(left_out(), (Texts{"1:2 it met other ranks", "1:3 it needs v of cell 1", "4:1 it had not ended there"}));
  EXPECT_EQ(past_.replay(1).lost, (std::map<int64_t, Texts>{{1, {"last"}}})) << "v is there, with another value";
}

TEST_F(PastCellsTest, AValueIsAlsoUsedByWhoCallsAFunctionThatMentionsIt) {
  run(1, "double v = 1;\ndouble f() { return v; }\ndouble g() { return f(); }", {});
  run(2, "v = reduced();", {{.line = 1, .names = {}}}, {0});
  run(3, "double w = g();\nv = f();", {{.line = 1, .names = {"w"}}, {.line = 2, .names = {}}});
  run(4, "v = 3;\ndouble x = g();", {{.line = 1, .names = {}}, {.line = 2, .names = {"x"}}});
  EXPECT_EQ(left_out(), (Texts{"2:1 it met other ranks", "3:1 it needs v of cell 2", "3:2 it needs v of cell 2"}));
}

TEST_F(PastCellsTest, AnotherDefinitionEndsIt) {
  run(1, "auto loss = reduced();", {{.line = 1, .names = {"loss"}}}, {0});
  run(2, "double loss = 0;", {{.line = 1, .names = {"loss"}}});
  run(3, "auto b = loss;", {{.line = 1, .names = {"b"}}});
  EXPECT_EQ(left_out(), Texts{"1:1 it met other ranks"});
}

TEST_F(PastCellsTest, ACellThatFailedEndsWhereItDid) {
  run(1, "int a = 1;\nthrows();\nint b = 2;",
      {{.line = 1, .names = {"a"}}, {.line = 2, .names = {}}, {.line = 3, .names = {"b"}}}, {}, 1);
  EXPECT_EQ(left_out(), (Texts{"1:2 it had not ended there", "1:3 it had not ended there"}));
}

TEST_F(PastCellsTest, ARankThatDiedInACellGoesByItsLogAndTheOthers) {
  const std::vector<protocol::Step> steps = {
      {.line = 1, .names = {"a"}}, {.line = 2, .names = {"c"}}, {.line = 3, .names = {"b"}}};
  past_.sent(kBoth, 1, {.cell = 1, .name = "", .entry = "", .steps = steps, .ranks = kBoth, .file = {}}, "",
             "int a = 1;\nauto c = reduced();\nint b = 2;");
  past_.begins(kBoth, {.cell = 1, .number = 1});
  past_.done(0, {.cell = 1, .steps_done = 3, .error = {}, .collectives = {}, .meetings = {1}});
  past_.died(1, 1, 2);
  EXPECT_EQ(left_out(), (Texts{"1:2 it met other ranks", "1:3 it had not ended there"}));
}

TEST_F(PastCellsTest, ACellThatHadEndedBeforeTheDeathRunsAgain) {
  run(1, "int a = 1;", {{.line = 1, .names = {"a"}}});
  past_.died(1, 1, 0);  // the log of a rank that waits is at the cell before, and may be at its begin
  EXPECT_EQ(left_out(), Texts());
}

TEST_F(PastCellsTest, WhatNobodyReportsIsNotRunAgain) {
  past_.sent(kBoth, 1,
             {.cell = 1, .name = "", .entry = "", .steps = {{.line = 1, .names = {"a"}}}, .ranks = kBoth, .file = {}},
             "", "int a = 1;");
  past_.begins(kBoth, {.cell = 1, .number = 1});
  past_.died(1, 1, 1);
  EXPECT_EQ(left_out(), Texts{"1:1 no rank that lives has reported whether it met others"});
}

TEST_F(PastCellsTest, ARankThatDiedInTheSameCellHasNotReportedEither) {
  past_.sent(kBoth, 1,
             {.cell = 1, .name = "", .entry = "", .steps = {{.line = 1, .names = {"a"}}}, .ranks = kBoth, .file = {}},
             "", "int a = reduced();");
  past_.begins(kBoth, {.cell = 1, .number = 1});
  past_.died(0, 1, 1);
  past_.died(1, 1, 1);
  for (const int rank : kBoth)
    EXPECT_EQ(left_out(rank), Texts{"1:1 no rank that lives has reported whether it met others"});
}

TEST_F(PastCellsTest, CellsWithoutItAreNamedAndCellsThatWereNotLoadedForgotten) {
  run(1, "int a = 1;", {{.line = 1, .names = {"a"}}});
  past_.sent(kBoth, 2, {.cell = 2, .name = "", .entry = "", .steps = {}, .ranks = kBoth, .file = {}}, "", "");
  past_.dropped(2);
  past_.died(1, 0, 0);
  const RankSet other{0};
  past_.sent(other, 3,
             {.cell = 3, .name = "", .entry = "", .steps = {{.line = 1, .names = {}}}, .ranks = other, .file = {}}, "",
             "f();");
  past_.begins(other, {.cell = 3, .number = 3});
  past_.done(0, {.cell = 3, .steps_done = 1, .error = {}, .collectives = {}});
  const Replay replay = past_.replay(1);
  EXPECT_EQ(replay.actions.size(), 2u);
  EXPECT_EQ(replay.cells_without_it, RankSet{3});
}

TEST_F(PastCellsTest, AStartThatFailedIsNoOtherDeath) {
  const auto run_on_other = [this](int64_t cell) {
    const RankSet other{0};
    past_.sent(other, cell,
               {.cell = cell, .name = "", .entry = "", .steps = {{.line = 1, .names = {}}}, .ranks = other, .file = {}},
               "", "f();");
    past_.begins(other, {.cell = cell, .number = cell});
    past_.done(0, {.cell = cell, .steps_done = 1, .error = {}, .collectives = {}});
  };
  run(1, "int a = 1;", {{.line = 1, .names = {"a"}}});
  past_.died(1, 0, 0);
  run_on_other(2);
  past_.died(1, 1, 0);
  const Replay replay = past_.replay(1);
  EXPECT_EQ(replay.cells_without_it, RankSet{2});
  EXPECT_TRUE(replay.left_out.empty()) << "cell 1 had been completed";
  past_.came_back(1);
  past_.died(1, 0, 0);
  run_on_other(3);
  EXPECT_EQ(past_.replay(1).cells_without_it, RankSet{3});
}

TEST_F(PastCellsTest, NamesAreThoseOfTheirNamespace) {
  run(1, "auto a::loss = reduced();", {{.line = 1, .names = {"a::loss"}}}, {0});
  run(2, "auto b::loss = make();", {{.line = 1, .names = {"b::loss"}}});
  run(3, "auto c = a::loss;", {{.line = 1, .names = {"c"}}});
  EXPECT_EQ(left_out().back(), "3:1 it needs a::loss of cell 1") << "which another loss does not define";
}

TEST_F(PastCellsTest, GroupsKeepTheNumbersOfTheirSteps) {
  past_.sent(kBoth, 1,
             {.cell = 1,
              .name = "",
              .entry = "",
              .steps = {{.line = 1, .names = {}}, {.line = 2, .names = {}}},
              .ranks = kBoth,
              .file = {}},
             "", "f();\ng();");
  past_.begins(kBoth, {.cell = 1, .number = 1});
  past_.done(0, {.cell = 1, .steps_done = 2, .error = {}, .collectives = {}, .meetings = {0}, .groups = {1, 2}});
  past_.died(1, 1, 2);
  const Replay replay = past_.replay(1);
  EXPECT_EQ(std::get<Replay::Cell>(replay.actions.at(1)).message.groups, (std::vector<int64_t>{1, 2}));
}

TEST_F(PastCellsTest, ACellThatFailsAgainTakesItsNamesWithIt) {
  run(1, "int a = read();\nint b = 1;", {{.line = 1, .names = {"a"}}, {.line = 2, .names = {"b"}}});
  run(2, "int c = b;", {{.line = 1, .names = {"c"}}});
  const Replay replay = past_.replay(1);
  const size_t index = std::get<Replay::Cell>(replay.actions[1]).run;
  past_.ran_again(1, index, {.cell = 1, .status = CellStatus::error, .steps_done = 0, .error = {}, .collectives = {}});
  EXPECT_EQ(left_out(), (Texts{"1:1 the cell failed as it ran again", "1:2 the cell failed as it ran again",
                               "2:1 it needs b of cell 1"}));
  EXPECT_EQ(past_.replay(1).actions.size(), replay.actions.size());
}

TEST_F(PastCellsTest, AStepThatMeetsTheOthersOnANewRankIsNoFailure) {
  run(1, "train();\nint a = 1;", {{.line = 1, .names = {}}, {.line = 2, .names = {"a"}}});
  const size_t index = std::get<Replay::Cell>(past_.replay(1).actions[1]).run;
  const protocol::Done failed = {
      .cell = 1, .status = CellStatus::error, .steps_done = 0, .error = {}, .collectives = {}, .meetings = {0}};
  past_.join(2, kBoth, RankSet::all(3));
  EXPECT_TRUE(past_.ran_again(2, index, failed));
  EXPECT_EQ(left_out(2), (Texts{"1:1 it met other ranks", "1:2 the cell failed as it ran again"}));
  EXPECT_FALSE(past_.ran_again(1, index, failed)) << "a rank of before has met nobody there";
  EXPECT_EQ(left_out(1).front(), "1:1 the cell failed as it ran again");
}

TEST_F(PastCellsTest, ANewRankFindsTheNumbersWithWhichItCame) {
  run(1, "int a = world_size;", {{.line = 1, .names = {"a"}}});
  const auto members = [&](int rank) {
    return std::get<Replay::Cell>(past_.replay(rank).actions.back()).message.members;
  };
  past_.session_grows(2);
  past_.join(2, kBoth, RankSet::all(3));
  EXPECT_EQ(members(2), RankSet::all(3));
  EXPECT_EQ(members(1), kBoth) << "as it had found them";
  past_.session_grows(3);
  past_.join(4, RankSet::all(3), RankSet{0, 1, 2, 4});
  EXPECT_EQ(members(2), RankSet::all(3));
  EXPECT_EQ(members(4), (RankSet{0, 1, 2, 4}));
}

}  // namespace
}  // namespace lockstep::shell
