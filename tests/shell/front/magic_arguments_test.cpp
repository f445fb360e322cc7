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

namespace {

const MagicDescription kSome = {{"[EXPR...]", "what to look at"}, {"-n,--last K", "so many"},      {"-g,--grep TEXT"},
                                {"--method fast|exact"},          {"-f,--force", "write over it"}, {"--all,-a"}};

MagicArguments given(std::string_view text) { return {kSome, "%some [EXPR...] [-n K]", text}; }

auto refuses(const MagicDescription& description, std::string_view text, const std::string& message) {
  EXPECT_THAT([&] { MagicArguments(description, "%some USAGE", text); },
              ThrowsMessage<UsageError>(message + "; usage: %some USAGE"));
}

}  // namespace

TEST(MagicArguments, OptionsAndTheRest) {
  const MagicArguments arguments = given("-n 3 net --grep=x y -f");
  EXPECT_EQ(arguments.value("--last"), "3");
  EXPECT_EQ(arguments.count("-n"), 3);
  EXPECT_EQ(arguments.value("-g"), "x");
  EXPECT_TRUE(arguments.has("--force"));
  EXPECT_FALSE(arguments.has("--all"));
  EXPECT_EQ(arguments.value("--method"), std::nullopt);
  EXPECT_THAT(arguments.words(), ElementsAre("net", "y"));
  EXPECT_EQ(given("").word(), std::nullopt);
}

TEST(MagicArguments, WordsOfCppAreNoOptions) {
  EXPECT_THAT(given("net.parameters() f(-n, --all) [&] { return -x; } \"a --grep\" a-b x=-1 -1.5").words(),
              ElementsAre("net.parameters()", "f(-n, --all)", "[&] { return -x; }", "a --grep", "a-b", "x=-1", "-1.5"));
  EXPECT_EQ(given("--grep -f").value("--grep"), "-f") << "a value is taken as it stands";
  EXPECT_EQ(given("--last=-3").value("-n"), "-3");
  EXPECT_EQ(given("--grep=a=b").value("-g"), "a=b");
  EXPECT_EQ(given("--grep [0,2-4]").value("-g"), "[0,2-4]");
  EXPECT_EQ(given("--grep \"two words\"").value("-g"), "two words");
}

TEST(MagicArguments, SlipsAreNamed) {
  refuses(kSome, "--froce", "unknown option --froce; did you mean --force?");
  refuses(kSome, "--forse=1", "unknown option --forse=1; did you mean --force?");
  refuses(kSome, "-n", "--last needs a value, K");
  refuses(kSome, "--grep= net", "-g needs a value, TEXT");
  refuses(kSome, "-n 1 --last 2", "--last is given twice");
  refuses({"[A...]", "|--all"}, "--all a", "%some takes A or --all, not both");
  refuses({{"-e,--enable"}, {"|-d,--disable"}}, "-e --disable", "%some takes -e or -d, not both");
  refuses(kSome, "--method exakt", "--method takes fast or exact, not 'exakt'; did you mean exact?");
  refuses({"A", "[B]"}, "a b c", "'c' is one word too many");
  refuses({}, "a", "%some takes no words: leave out 'a'");
  refuses(kSome, "--force=no", "--force takes no value");
  refuses({{"A", "the first"}}, "", "%some needs A, the first");
  refuses({"on|off"}, "", "%some needs on or off");
  refuses({"on|off"}, "offf", "%some takes on or off, not 'offf'; did you mean off?");
  EXPECT_EQ(MagicArguments({"on|off|FILE"}, "%some", "of").word(), "of");
  EXPECT_THAT([] { given("-n x").count("-n"); }, ThrowsMessage<UsageError>(HasSubstr("-n is a whole number")));
}

TEST(MagicArguments, HelpAndWhatComesNext) {
  EXPECT_EQ(help_of(kSome),
            "EXPR          what to look at\n"
            "-n, --last K  so many\n"
            "-f, --force   write over it\n");
  const auto next = [](const std::vector<std::string>& before) { return expected_after(kSome, before)->usage(); };
  EXPECT_EQ(next({}), "[EXPR...]");
  EXPECT_EQ(next({"-n"}), "[-n K]");
  EXPECT_EQ(next({"--force"}), "[EXPR...]");
  EXPECT_EQ(next({"a", "--last", "3"}), "[EXPR...]");
  EXPECT_EQ(expected_after({{"--self"}}, {}), nullptr);
  EXPECT_EQ(usage_of({"[A...]", "|--all,-a", "-k K"}), " [A... | --all] [-k K]");
}

TEST(MagicArguments, Counts) {
  EXPECT_EQ(parse_count("12", "K"), 12);
  EXPECT_THAT([] { parse_count("0", "K"); }, ThrowsMessage<UsageError>(HasSubstr("at least 1, not '0'")));
  EXPECT_THAT([] { parse_count("3x", "K"); }, ThrowsMessage<UsageError>(HasSubstr("'3x'")));
}
