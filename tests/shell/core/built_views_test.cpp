// Which object a rank gets out of a built file: by what it has done, not by its number.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shell/built/built_views.h"

namespace lockstep::shell {
namespace {

using protocol::Compile;
using protocol::Compiled;
using protocol::Settle;
using testing::HasSubstr;

/// A take, written as the compiler would have answered it.
class TakeWriter {
 public:
  explicit TakeWriter(int ranks) {
    take_.ranks = ranks;
    take_.sessions.emplace_back();
  }

  /// Each step defines the variable of this name, or nothing where it is empty. Ranks that are not in `done` complete
  /// all. `of_last`: the blob of the last rank, where that has an object of its own.
  TakeWriter& cell(int64_t number, const std::string& text, const RankSet& ranks, std::vector<std::string> steps,
                   int64_t blob, std::map<int, int64_t> done = {}, int64_t of_last = 0) {
    auto step = std::make_shared<BuiltStep>();
    step->request = Compile{.cell = ++cells_, .text = text, .ranks = ranks, .number = number};
    Compiled compiled{.cell = cells_, .status = CompileStatus::ok};
    protocol::CompiledObject object{.ranks = ranks, .name = "cell_" + std::to_string(cells_) + ".so", .frame = blob};
    for (const std::string& name : steps) {
      object.steps.push_back({1, {}});
      if (!name.empty()) object.steps.back().names.push_back(name);
    }
    compiled.objects.push_back(object);
    if (of_last != 0) {
      compiled.objects.back().ranks.erase(ranks.ranks().back());
      compiled.objects.push_back(object);
      compiled.objects.back().ranks = RankSet{ranks.ranks().back()};
      compiled.objects.back().frame = of_last;
    }
    step->answer = compiled;
    step->settle = Settle{.cell = cells_, .loaded = true, .steps_done = std::move(done)};
    for (const int rank : ranks) step->settle->steps_done.emplace(rank, static_cast<int64_t>(steps.size()));
    for (size_t i = 0; i < steps.size(); ++i) {
      if (steps[i].empty()) continue;
      std::erase_if(names_.names, [&](const auto& name) { return name.name == steps[i]; });
      RankSet see;
      for (const int rank : ranks)
        if (static_cast<int64_t>(i) < step->settle->steps_done[rank]) see.insert(rank);
      names_.names.push_back({.name = steps[i], .kind = "variable", .type = "int", .cell = number, .ranks = see});
    }
    step->names = names_;
    take_.sessions.back().push_back(step);
    return *this;
  }
  TakeWriter& error(int64_t number, const std::string& text, const RankSet& ranks) {
    auto step = std::make_shared<BuiltStep>();
    step->request = Compile{.cell = ++cells_, .text = text, .ranks = ranks, .number = number};
    step->answer = Compiled{.cell = cells_, .status = CompileStatus::error, .rendered = "cell 2:1:1: error: no\n"};
    take_.sessions.back().push_back(step);
    return *this;
  }
  TakeWriter& forget(const std::string& name) {
    auto step = std::make_shared<BuiltStep>();
    step->request = protocol::Forget{.names = {name}};
    step->answer = protocol::Settled{};
    std::erase_if(names_.names, [&](const auto& each) { return each.name == name; });
    step->names = names_;
    take_.sessions.back().push_back(step);
    return *this;
  }
  operator Take() const { return take_; }

 private:
  Take take_;
  protocol::Names names_;
  int64_t cells_ = 0;
};

BuiltViews views_of(std::vector<Take> takes) {
  auto file = std::make_shared<BuiltFile>();
  file->takes = std::move(takes);
  return BuiltViews(file, 0);
}

Compile request(int64_t number, const std::string& text, const RankSet& ranks) {
  return {.cell = number, .text = text, .ranks = ranks, .number = number};
}

/// Compiles and settles; the blob that each rank gets. Empty where there is none.
std::map<int, int64_t> run(BuiltViews& views, int64_t number, const std::string& text, const RankSet& ranks,
                           std::map<int, int64_t> done = {}, bool loaded = true) {
  const auto compiled = views.compile(request(number, text, ranks));
  std::map<int, int64_t> blobs;
  if (!compiled) return blobs;
  Settle settle{.cell = number, .loaded = loaded, .steps_done = std::move(done)};
  for (const auto& object : compiled->objects)
    for (const int rank : object.ranks) {
      blobs[rank] = object.frame;
      settle.steps_done.emplace(rank, static_cast<int64_t>(object.steps.size()));
    }
  views.settle(settle);
  return blobs;
}

using Blobs = std::map<int, int64_t>;

TEST(BuiltViews, ServeMoreRanksThanTheFileWasBuiltFor) {
  BuiltViews views = views_of({TakeWriter(2)
                                   .cell(1, "int a = 1;", {0, 1}, {"a"}, 1)
                                   .cell(2, "int b = 2;", {0}, {"b"}, 2)
                                   .cell(3, "a", {0, 1}, {""}, 3)});
  const RankSet all = RankSet::all(4);
  EXPECT_EQ(run(views, 1, "int a = 1;", all), (Blobs{{0, 1}, {1, 1}, {2, 1}, {3, 1}}));
  EXPECT_EQ(run(views, 2, "int b = 2;", {0}), (Blobs{{0, 2}}));
  const auto compiled = views.compile(request(3, "a", all));
  ASSERT_TRUE(compiled);
  ASSERT_EQ(compiled->objects.size(), 1u) << "one object for all";
  EXPECT_EQ(compiled->objects[0].ranks, all);
}

TEST(BuiltViews, AnotherRankThanInTheScriptTakesItsRole) {
  BuiltViews views = views_of({TakeWriter(2)
                                   .cell(1, "int b = 2;", {0}, {"b"}, 1)
                                   .cell(2, "b", {0}, {""}, 2)
                                   .cell(3, "int b = 5;", {1}, {"b"}, 3)});
  EXPECT_EQ(run(views, 1, "int b = 2;", {3}), (Blobs{{3, 1}}));
  EXPECT_EQ(run(views, 2, "b", {3}), (Blobs{{3, 2}}));
  EXPECT_EQ(run(views, 3, "int b = 5;", {3}), Blobs{}) << "no recorded rank has run 1, 2 and 3";
}

TEST(BuiltViews, Rule7ARankThatIsGoneTakesNothingFromTheOthers) {
  BuiltViews views =
      views_of({TakeWriter(2).cell(1, "int a = 1;", {0, 1}, {"a"}, 1).cell(2, "a + 1", {0, 1}, {""}, 2)});
  run(views, 1, "int a = 1;", {0, 1});
  EXPECT_EQ(run(views, 2, "a + 1", {1}), (Blobs{{1, 2}}));
}

TEST(BuiltViews, ANameThatIsMissingMattersWhereTheCellMentionsIt) {
  BuiltViews views = views_of({TakeWriter(2)
                                   .cell(1, "int a = 1; int loss = f();", {0, 1}, {"a", "loss"}, 1)
                                   .cell(2, "a + 1", {0, 1}, {""}, 2)
                                   .cell(3, "loss + 1", {0, 1}, {""}, 3)});
  run(views, 1, "int a = 1; int loss = f();", {0, 1}, {{1, 1}});
  EXPECT_EQ(run(views, 2, "a + 1", {0, 1}), (Blobs{{0, 2}, {1, 2}}));
  EXPECT_EQ(run(views, 3, "loss + 1", {0, 1}), Blobs{});
  EXPECT_THAT(views.why_not(), HasSubstr("'loss'"));
  EXPECT_THAT(views.why_not(), HasSubstr("rank 1"));
  EXPECT_THAT(views.why_not(), HasSubstr("raises-exception"));
  EXPECT_EQ(run(views, 3, "loss + 1", {0}), (Blobs{{0, 3}}));
}

TEST(BuiltViews, WhatMayStandForAMissingNameCountsAsMentioningIt) {
  for (const char* text : {"#include \"uses_loss.h\"\n", "_ + 1", "_1 + 1"}) {
    BuiltViews views =
        views_of({TakeWriter(1).cell(1, "f(); int loss = 1;", {0}, {"", "loss"}, 1).cell(2, text, {0}, {""}, 2)});
    run(views, 1, "f(); int loss = 1;", {0}, {{0, 0}});
    EXPECT_EQ(run(views, 2, text, {0}), Blobs{}) << text;
  }
}

TEST(BuiltViews, ATakeInWhichTheCellEndedEarlyHasTheViewAfterIt) {
  const std::string define = "int a = 1; int loss = f();", again = "int loss = 0;";
  BuiltViews views = views_of({TakeWriter(2)
                                   .cell(1, define, {0, 1}, {"a", "loss"}, 1)
                                   .cell(2, again, {0, 1}, {"loss"}, 2)
                                   .cell(3, "loss", {0, 1}, {""}, 3),
                               TakeWriter(2)
                                   .cell(1, define, {0, 1}, {"a", "loss"}, 1, {{1, 1}})
                                   .cell(2, again, {0, 1}, {"loss"}, 2, {}, 4)
                                   .cell(3, "loss", {0, 1}, {""}, 3, {}, 5)});
  run(views, 1, define, {0, 1, 2}, {{2, 1}});
  // Ranks 0 and 1 are like those of the first take, rank 2 is like rank 1 of the second.
  EXPECT_EQ(run(views, 2, again, {0, 1, 2}), (Blobs{{0, 2}, {1, 2}, {2, 4}}));
  EXPECT_EQ(run(views, 3, "loss", {0, 1, 2}), (Blobs{{0, 3}, {1, 3}, {2, 5}}));
}

TEST(BuiltViews, Rule1RanksThatCanHaveTheSameObjectHaveIt) {
  const std::string define = "int a = 1; int loss = f();";
  BuiltViews views =
      views_of({TakeWriter(2).cell(1, define, {0, 1}, {"a", "loss"}, 1).cell(2, "a", {0, 1}, {""}, 2),
                TakeWriter(2).cell(1, define, {0, 1}, {"a", "loss"}, 1, {{1, 1}}).cell(2, "a", {0, 1}, {""}, 3)});
  run(views, 1, define, {0, 1, 2}, {{1, 1}});
  EXPECT_EQ(run(views, 2, "a", {0, 1, 2}), (Blobs{{0, 2}, {1, 2}, {2, 2}}));
}

TEST(BuiltViews, ACellThatDidNotRunIsPassedOver) {
  BuiltViews views = views_of({TakeWriter(1)
                                   .cell(1, "f();", {0}, {""}, 1)
                                   .cell(1, "\nint late = 1;", {0}, {"late"}, 2)
                                   .cell(2, "g();", {0}, {""}, 3)
                                   .cell(3, "late", {0}, {""}, 4)});
  run(views, 1, "f();", {0}, {{0, 0}});  // it throws: its second part does not come
  EXPECT_EQ(run(views, 2, "g();", {0}), (Blobs{{0, 3}}));
  EXPECT_EQ(run(views, 3, "late", {0}), Blobs{});
}

TEST(BuiltViews, ACellWithADirectiveThatDidNotRunMattersToAll) {
  BuiltViews views = views_of({TakeWriter(1)
                                   .cell(1, "f();", {0}, {""}, 1)
                                   .cell(1, "\nusing namespace torch; g();", {0}, {""}, 2)
                                   .cell(2, "ones(2)", {0}, {""}, 3)});
  run(views, 1, "f();", {0}, {{0, 0}});
  EXPECT_EQ(run(views, 2, "ones(2)", {0}), Blobs{});
  EXPECT_THAT(views.why_not(), HasSubstr("using namespace"));
}

TEST(BuiltViews, ACellThatWasNotLoadedLeavesItsNamesUndefined) {
  BuiltViews views = views_of({TakeWriter(1).cell(1, "int a = 1;", {0}, {"a"}, 1).cell(2, "a", {0}, {""}, 2)});
  run(views, 1, "int a = 1;", {0}, {}, /*loaded=*/false);
  EXPECT_EQ(run(views, 2, "a", {0}), Blobs{});
}

TEST(BuiltViews, ACellThatDoesNotCompileSaysSoAgainOnTheSameRanksOnly) {
  const Take take =
      TakeWriter(2).cell(1, "int a = 1;", {0, 1}, {"a"}, 1).error(2, "b", {0, 1}).cell(3, "a", {0, 1}, {""}, 2);
  BuiltViews views = views_of({take});
  run(views, 1, "int a = 1;", {0, 1});
  const auto compiled = views.compile(request(2, "b", {0, 1}));
  ASSERT_TRUE(compiled);
  EXPECT_EQ(compiled->status, CompileStatus::error);
  EXPECT_EQ(compiled->rendered, "cell 2:1:1: error: no\n");
  EXPECT_FALSE(views.compile(request(2, "b", {0})));
  EXPECT_THAT(views.why_not(), HasSubstr("did not compile when the file was built"));
  EXPECT_EQ(run(views, 3, "a", {0, 1}), (Blobs{{0, 2}, {1, 2}}));
}

TEST(BuiltViews, OtherTextsAreShownBesideWhatWasBuilt) {
  BuiltViews views = views_of({TakeWriter(2).cell(1, "\nf(lockstep::RankSet{0, 1});", {0, 1}, {""}, 1)});
  EXPECT_FALSE(views.compile(request(1, "\nf(lockstep::RankSet{0, 1, 2});", {0, 1, 2})));
  EXPECT_THAT(views.why_not(), HasSubstr("built: f(lockstep::RankSet{0, 1});"));
  EXPECT_THAT(views.why_not(), HasSubstr("now:   f(lockstep::RankSet{0, 1, 2});"));
  EXPECT_THAT(views.why_not(), HasSubstr("built for 2"));
  EXPECT_FALSE(views.compile(request(9, "f();", {0})));
  EXPECT_THAT(views.why_not(), HasSubstr("no cell 9"));
}

TEST(BuiltViews, NamesAreThoseThatTheRanksSee) {
  BuiltViews views = views_of({TakeWriter(2)
                                   .cell(1, "int b = 1; int a = g();", {0, 1}, {"b", "a"}, 1)
                                   .cell(2, "int c = 2;", {1}, {"c"}, 2)
                                   .forget("b")});
  EXPECT_TRUE(views.names().names.empty());
  run(views, 1, "int b = 1; int a = g();", {0, 1, 2}, {{2, 1}});
  run(views, 2, "int c = 2;", {1});
  auto names = views.names().names;
  ASSERT_EQ(names.size(), 3u);
  EXPECT_EQ(names[0].name, "b") << "in the order of the compiler";
  EXPECT_EQ(names[0].ranks, (RankSet{0, 1, 2}));
  EXPECT_EQ(names[1].ranks, (RankSet{0, 1})) << "rank 2 did not come to it";
  EXPECT_EQ(names[2].ranks, (RankSet{1}));
  EXPECT_FALSE(views.forget({.names = {"a"}}));
  EXPECT_TRUE(views.forget({.names = {"b"}}));
  names = views.names().names;
  ASSERT_EQ(names.size(), 2u);
  EXPECT_EQ(names[0].name, "a");
}

TEST(BuiltViews, AfterNamesWereForgottenCellsAreThoseFromThereOn) {
  const Take take = TakeWriter(1).cell(1, "a();", {0}, {""}, 1).forget("x").cell(2, "b();", {0}, {""}, 2);
  BuiltViews without = views_of({take});
  run(without, 1, "a();", {0});
  EXPECT_EQ(run(without, 2, "b();", {0}), Blobs{}) << "it was compiled without x";
  BuiltViews with = views_of({take});
  run(with, 1, "a();", {0});
  ASSERT_TRUE(with.forget({.names = {"x"}}));
  EXPECT_EQ(run(with, 2, "b();", {0}), (Blobs{{0, 2}}));
}

}  // namespace
}  // namespace lockstep::shell
