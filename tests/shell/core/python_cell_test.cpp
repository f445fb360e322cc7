// Python cells taken apart: where a magic may stand, and when a text is complete.
#include <gtest/gtest.h>

#include "protocol/error.h"
#include "shell/scripts/python_cell.h"
#include "shell/scripts/script.h"

using namespace lockstep;
using namespace lockstep::shell;

namespace {

ParsedCell parse_python(const std::string& text) { return parse_python_cell(text, MagicRegistry::instance()); }

/// "code" and the names of magics, in order.
std::vector<std::string> parts(const std::string& text) {
  std::vector<std::string> result;
  for (const CellPart& part : parse_python(text).parts) result.push_back(part.is_code ? "code" : part.magic.name);
  return result;
}

using Parts = std::vector<std::string>;

}  // namespace

TEST(PythonCell, MagicsStandWhereAStatementBegins) {
  EXPECT_EQ(parts("x = 1\n%rank 0\ny = 2\n"), (Parts{"code", "rank", "code"}));
  EXPECT_EQ(parts("x = (7\n%rank)\n"), (Parts{"code"}));
  EXPECT_EQ(parts("x = '''\n%rank 0\n'''\n"), (Parts{"code"}));
  EXPECT_EQ(parts("x = 7 \\\n% rank\n"), (Parts{"code"}));
  EXPECT_EQ(parts("x = 'it''s (' # ((\n%rank 0"), (Parts{"code", "rank"}));
  EXPECT_EQ(parts("# %rank 0\n# %no_magic\n"), (Parts{"rank"}));
  EXPECT_EQ(parts("model.head?\n!ls\n?"), (Parts{"?", "!", "help"}));
  EXPECT_EQ(parts("# a comment\n\n"), Parts{});
}

TEST(PythonCell, LinesOfCodeKeepTheirNumbers) {
  const ParsedCell cell = parse_python("%%rank 1\nx = 1\n%rank\ny = 2\n");
  ASSERT_EQ(cell.cell_magics.size(), 1u);
  EXPECT_EQ(cell.cell_magics[0].arguments, "1");
  ASSERT_EQ(cell.parts.size(), 3u);
  EXPECT_EQ(cell.parts[0].code, "\nx = 1\n");
  EXPECT_EQ(cell.parts[2].code, "\n\n\ny = 2\n");
}

TEST(PythonCell, WordsOfPdbAreMagicsAlone) {
  EXPECT_EQ(parts("continue"), (Parts{"continue"}));
  EXPECT_EQ(parts(" where \n"), (Parts{"where"}));
  EXPECT_EQ(parse_python("up 2").parts.at(0).magic.arguments, "2");
  EXPECT_EQ(parse_python("# a title\n\nup 2").parts.at(0).magic.arguments, "2");
  EXPECT_EQ(parts("# a title"), (Parts{}));
  EXPECT_EQ(parts("up = 2"), (Parts{"code"}));
  EXPECT_EQ(parts("down(2)"), (Parts{"code"}));
  EXPECT_EQ(parts("x = 1\nwhere"), (Parts{"code"}));
  EXPECT_EQ(parts("x = 1\ncontinue\n"), (Parts{"code", "continue"}));
  EXPECT_EQ(parts("for i in x:\n    continue\n"), (Parts{"code"}));
}

TEST(PythonCell, WrongMagicsNameTheLine) {
  const auto message = [](const std::string& text) {
    try {
      parse_python(text);
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(message("x = 1\n%verfy x").find("line 2: there is no magic %verfy; did you mean %verify?"),
            std::string::npos);
  EXPECT_NE(message("x = 1\n%%rank 0").find("line 2"), std::string::npos);
  EXPECT_NE(message(std::string("x\0y", 3)), "");
}

TEST(PythonCell, CppCellsAreKnown) {
  EXPECT_TRUE(is_cpp_cell("# note\n%%rank 0\n%%cpp\nint x;"));
  EXPECT_FALSE(is_cpp_cell("x = 1\n%%cpp"));
}

TEST(PythonCell, CompletenessWithoutAnInterpreter) {
  const auto complete = [](const char* text) { return scan_python_completeness(text).status == TextStatus::complete; };
  EXPECT_TRUE(complete("x = 1"));
  EXPECT_TRUE(complete("f(\n  1)"));
  EXPECT_FALSE(complete("f(1,"));
  EXPECT_FALSE(complete("'''text"));
  EXPECT_FALSE(complete("x = 1 + \\"));
  EXPECT_FALSE(complete("for i in x:"));
  EXPECT_FALSE(complete("for i in x:\n    print(i)"));
  EXPECT_TRUE(complete("for i in x:\n    print(i)\n\n"));
  EXPECT_FALSE(complete("@f"));
}

TEST(PythonScript, PercentFormatOfPython) {
  const auto cells =
      parse_script("# head\n# %% one\nx = 1\n# %% [markdown]\n# A *note*\n# %%\n%rank 0\n", "a.py", Language::python);
  ASSERT_EQ(cells.size(), 3u);
  EXPECT_EQ(cells[0].title, "one");
  EXPECT_EQ(cells[0].text, "x = 1");
  EXPECT_EQ(cells[0].line, 3);
  EXPECT_TRUE(cells[1].markdown);
  EXPECT_EQ(cells[1].text, "A *note*");
  EXPECT_EQ(cells[2].text, "%rank 0");
  EXPECT_THROW(parse_script("", "a.py", Language::python), UsageError);
}
