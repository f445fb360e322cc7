// Cells taken apart, under the real magics.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "protocol/error.h"
#include "shell/scripts/magic_parser.h"

namespace lockstep::shell {
namespace {

using testing::HasSubstr;

ParsedCell parse(std::string_view text) { return parse_cell(text, MagicRegistry::instance()); }

std::string parse_error(std::string_view text) {
  try {
    parse(text);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

TEST(MagicParser, CppAloneStaysAsItIs) {
  const auto cell = parse("int a = 7;\na % 3\n");
  ASSERT_EQ(cell.parts.size(), 1u);
  EXPECT_EQ(cell.parts[0].code, "int a = 7;\na % 3\n");
}

TEST(MagicParser, CellMagicsComeFirstAndLinesHold) {
  const auto cell = parse("\n// why\n%%rank[0,2]\n%%time\nint k;\n");
  ASSERT_EQ(cell.cell_magics.size(), 2u);
  EXPECT_EQ(cell.cell_magics[0].name, "rank");
  EXPECT_EQ(cell.cell_magics[0].arguments, "[0,2]");
  EXPECT_EQ(cell.cell_magics[1].line, 4);
  EXPECT_EQ(cell.parts.at(0).code, "\n\n\n\nint k;\n");
  EXPECT_EQ(cell.body, "\n\n\n\nint k;\n");
}

TEST(MagicParser, LineMagicsSplitTheCell) {
  const auto cell = parse("int a;\n%sync\na\n");
  ASSERT_EQ(cell.parts.size(), 3u);
  EXPECT_EQ(cell.parts[0].code, "int a;\n");
  EXPECT_EQ(cell.parts[1].magic.name, "sync");
  EXPECT_EQ(cell.parts[1].magic.line, 2);
  EXPECT_EQ(cell.parts[2].code, "\n\na\n");
}

TEST(MagicParser, PercentElsewhereIsCpp) {
  for (const char* text :
       {"int a = 10\n%sync;\n", "f(1,\n%sync\n);\n", "auto s = R\"(\n%sync\n)\";\n", "/*\n%sync\n*/\n",
        "#define A \\\n%sync\n", "// in C:\\data\\\n%sync\n", "#define A /*\n*/ \\\n%sync\n"}) {
    const auto cell = parse(text);
    for (const auto& part : cell.parts) EXPECT_TRUE(part.is_code) << text;
  }
}

TEST(MagicParser, CommandsOfTheShell) {
  const auto cell = parse("int a;\n!ls -l *.cpp | wc\n!./run.sh\n! make\n");
  ASSERT_EQ(cell.parts.size(), 4u);
  EXPECT_EQ(cell.parts[1].magic.name, "!");
  EXPECT_EQ(cell.parts[1].magic.arguments, "ls -l *.cpp | wc");
  EXPECT_EQ(cell.parts[1].magic.line, 2);
  EXPECT_EQ(cell.parts[3].magic.arguments, "make");
}

TEST(MagicParser, NegationIsCpp) {
  for (const char* text : {"bool done = false;\n!done\n", "!(a || b)\n", "!!ready\n", "!rank\n",
                           "!torch::cuda::is_available()\n", "!known_before &&\n true\n"}) {
    const auto cell = parse(text);
    for (const auto& part : cell.parts) EXPECT_TRUE(part.is_code) << text;
  }
  const auto is_name = [](const std::string& name) { return name == "of_a_cell"; };
  EXPECT_TRUE(parse_cell("!of_a_cell.empty()", MagicRegistry::instance(), is_name).parts.at(0).is_code);
  EXPECT_FALSE(parse_cell("!of_a_shell", MagicRegistry::instance(), is_name).parts.at(0).is_code);
}

TEST(MagicParser, CodeBehindACellMagicIsShownItsLineMagic) {
  const Magic& rank = MagicRegistry::instance().find("rank", true);
  EXPECT_THAT([&] { (void)rank.read(MagicForm::cell, "0 int a;"); },
              testing::ThrowsMessage<UsageError>("'int' is one word too many; code stands in the lines below; usage: "
                                                 "%%rank SPEC, or %rank [SPEC] [CODE]"));
}

TEST(MagicParser, TextIsNotLookedInto) {
  const auto cell = parse("// why\n%%writefile notes.txt\n%%no_magic\n\n  %sync\n!ls\n");
  ASSERT_EQ(cell.cell_magics.size(), 1u);
  EXPECT_EQ(cell.cell_magics[0].arguments, "notes.txt");
  EXPECT_TRUE(cell.parts.empty());
  EXPECT_EQ(cell.body, "%%no_magic\n\n  %sync\n!ls\n");
}

TEST(MagicParser, BehindACommentWhereTheNameIsKnown) {
  const auto cell = parse("// %%rank 0\n// %sync\n// 100 %sure\n// %surely not\nint k;\n");
  EXPECT_EQ(cell.cell_magics.size(), 1u);
  ASSERT_EQ(cell.parts.size(), 2u);
  EXPECT_EQ(cell.parts[0].magic.name, "sync");
}

TEST(MagicParser, Questions) {
  EXPECT_EQ(parse("net?").parts.at(0).magic.name, "?");
  EXPECT_EQ(parse("net->fc1?").parts.at(0).magic.arguments, "net->fc1");
  EXPECT_EQ(parse("%rank?").parts.at(0).magic.name, "help");
  EXPECT_EQ(parse("%rank??").parts.at(0).magic.arguments, "rank");
  EXPECT_EQ(parse("?%rank").parts.at(0).magic.arguments, "rank");
  EXPECT_EQ(parse("net??").parts.at(0).magic.name, "??");
  EXPECT_EQ(parse("?net").parts.at(0).magic.name, "?");
  EXPECT_EQ(parse("? net.fc").parts.at(0).magic.arguments, "net.fc");
  EXPECT_EQ(parse("??net").parts.at(0).magic.name, "??");
  EXPECT_EQ(parse("net?  // what").parts.at(0).magic.arguments, "net");
  for (const char* text : {"?", "??", "help", "help()", " help  // me"}) {
    EXPECT_EQ(parse(text).parts.at(0).magic.name, "help") << text;
    EXPECT_EQ(parse(text).parts.at(0).magic.arguments, "") << text;
  }
  EXPECT_TRUE(parse("help(3)").parts.at(0).is_code);
  EXPECT_TRUE(
      parse_cell("help", MagicRegistry::instance(), [](const std::string&) { return true; }).parts.at(0).is_code);
  EXPECT_EQ(parse("%rank?").parts.at(0).magic.arguments, "rank");
  EXPECT_TRUE(parse("int k = a ?\n1 : 2;").parts.at(0).is_code);
}

TEST(MagicParser, CommentsBehindMagicsAreNoArguments) {
  const auto arguments = [](std::string_view text) { return parse(text).parts.at(0).magic.arguments; };
  EXPECT_EQ(arguments("%dist_status   // what every rank is doing"), "");
  EXPECT_EQ(arguments("// %verify net// // as jupytext has it"), "net//");
  EXPECT_EQ(arguments("%env URL=http://there/x  //y"), "URL=http://there/x");
  EXPECT_EQ(arguments("%rank 0 show(\"a // b\"); f('\"') // c"), "0 show(\"a // b\"); f('\"')");
  EXPECT_EQ(arguments("%rank 0 f(1'000) // it's"), "0 f(1'000)");
  EXPECT_EQ(arguments("%rank 0 f(R\"(\" // )\") // c"), "0 f(R\"(\" // )\")");
  EXPECT_EQ(parse("%%rank [0]  // not the others\nint k;").cell_magics.at(0).arguments, "[0]");
  EXPECT_EQ(parse("%sync? // or %help sync").parts.at(0).magic.name, "help");
}

TEST(MagicParser, ZeroBytesAreNoText) {
  EXPECT_THAT(parse_error(std::string_view("int k;\nint\0 j;", 14)), HasSubstr("line 2: the text holds zero bytes"));
}

TEST(MagicParser, SlipsAreNamed) {
  EXPECT_THAT(parse_error("%%rnk 0\nint k;"), HasSubstr("%%rank"));
  EXPECT_THAT(parse_error("int k;\n%snc"), HasSubstr("line 2"));
  EXPECT_THAT(parse_error("int k;\n%snc"), HasSubstr("%sync"));
  EXPECT_THAT(parse_error("int k;\n%%rank 0\n"), HasSubstr("put it first"));
  EXPECT_THAT(parse_error("/* a\n*/ int k;\n%%rank 0\n"), HasSubstr("put it first"));
  EXPECT_THAT(parse_error("%%sync\n"), HasSubstr("one %"));
  EXPECT_THAT(parse_error("%writefile f.h\n"), HasSubstr("two %"));
}

TEST(MagicParser, NothingToCompile) {
  EXPECT_FALSE(parse("%sync\n").has_code());
  EXPECT_FALSE(parse("// words\n/* more\n */\n\n").has_code());
  EXPECT_TRUE(parse("").parts.empty());
  EXPECT_TRUE(parse("/* never closed\nint a;\n").has_code()) << "the compiler says what is wrong";
  EXPECT_TRUE(parse("// words\n/* one */ /* another").has_code());
  EXPECT_FALSE(parse("%sync\n/* more */\n%sync\n").has_code());
  EXPECT_EQ(parse("/* what\n   follows */\n%%rank 0\n").cell_magics.size(), 1u);
}

}  // namespace
}  // namespace lockstep::shell
