#include "shell/scripts/magic_arguments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "protocol/error.h"

using namespace lockstep;
using namespace lockstep::shell;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::ThrowsMessage;

TEST(MagicArguments, WordsAreCutOutsideBracketsAndQuotes) {
  EXPECT_THAT(split_arguments("net  opt.state(a, b) [1, 2] {x, y}"),
              ElementsAre("net", "opt.state(a, b)", "[1, 2]", "{x, y}"));
  EXPECT_THAT(split_arguments("\"two words\" 'c d' f(\"a )\")"), ElementsAre("two words", "c d", "f(\"a )\")"));
  EXPECT_THAT(split_arguments("  "), IsEmpty());
  EXPECT_THAT(split_arguments("don't stop"), ElementsAre("don't", "stop"));
}

TEST(MagicArguments, ALambdaIsOneWord) {
  const auto first = [](const std::string& word) {
    EXPECT_THAT(split_arguments(word + " net optimizer"), ElementsAre(word, "net", "optimizer"));
    EXPECT_THAT(split_arguments(word), ElementsAre(word));
    EXPECT_THAT(split_arguments("net " + word), ElementsAre("net", word));
  };
  first("[&](bool s) { step(s); }");
  first("[&] { step(true); }");
  first("[=, &net] (bool s) mutable noexcept { step(s); }");
  first("[] () -> std::vector<int> { return {1}; }");
  first("[&]<typename T>(T s) { step(s); }");
  first("[this, x = y[0]](int) {}");
  first("[&](bool s) {step(s);}");
  first("[] { return indices; }()");
  EXPECT_THAT(split_arguments("[&](bool s) {a b} [&] {c}"), ElementsAre("[&](bool s) {a b}", "[&] {c}"));
  // Sets of ranks, and elements, are none.
  EXPECT_THAT(split_arguments("[0, 2-4] {x}"), ElementsAre("[0, 2-4]", "{x}"));
  EXPECT_THAT(split_arguments("nets[i] {x}"), ElementsAre("nets[i]", "{x}"));
  EXPECT_THAT(split_arguments("[&] net"), ElementsAre("[&]", "net"));
}

TEST(MagicArguments, TemplateArgumentsAreNotCut) {
  EXPECT_THAT(split_arguments("make<int, 2>(a) net"), ElementsAre("make<int, 2>(a)", "net"));
  EXPECT_THAT(split_arguments("std::array<std::pair<int, long>, 2>{x} net"),
              ElementsAre("std::array<std::pair<int, long>, 2>{x}", "net"));
  EXPECT_THAT(split_arguments("Table<int, 2>::rows net"), ElementsAre("Table<int, 2>::rows", "net"));
  EXPECT_THAT(split_arguments("a<b c>d"), ElementsAre("a<b", "c>d"));
}

TEST(MagicArguments, WhatIsNotClosedIsNamed) {
  EXPECT_THAT([] { split_arguments("f(a"); }, ThrowsMessage<UsageError>(HasSubstr("')' is missing")));
  EXPECT_THAT([] { split_arguments("\"a"); }, ThrowsMessage<UsageError>(HasSubstr("not closed")));
}

TEST(MagicArguments, OptionsAndTheRest) {
  MagicArguments arguments("-n 3 net --grep=x -f", "%m");
  EXPECT_EQ(arguments.take_value("-n", "--last"), "3");
  EXPECT_EQ(arguments.take_value("-g", "--grep"), "x");
  EXPECT_TRUE(arguments.take_flag("-f", "--force"));
  EXPECT_FALSE(arguments.take_flag("-a", "--all"));
  EXPECT_EQ(arguments.rest_word(), "net");
}

TEST(MagicArguments, SlipsNameTheNearestOption) {
  MagicArguments arguments("--froce", "%save FILE [--force]");
  arguments.take_flag("-f", "--force");
  EXPECT_THAT([&] { arguments.rest(); },
              ThrowsMessage<UsageError>(HasSubstr("unknown option --froce; did you mean --force?")));
  EXPECT_THAT([] { MagicArguments("-n", "%m").take_value("-n", ""); },
              ThrowsMessage<UsageError>(HasSubstr("-n needs a value")));
  EXPECT_THAT([] { MagicArguments("a b", "%m").rest_word(); },
              ThrowsMessage<UsageError>(HasSubstr("'b' is one word too many")));
  EXPECT_EQ(MagicArguments("-3", "%m").rest_word(), "-3");
}

TEST(MagicArguments, Counts) {
  EXPECT_EQ(parse_count("12", "K"), 12);
  EXPECT_THAT([] { parse_count("0", "K"); }, ThrowsMessage<UsageError>(HasSubstr("at least 1, not '0'")));
  EXPECT_THAT([] { parse_count("3x", "K"); }, ThrowsMessage<UsageError>(HasSubstr("'3x'")));
}
