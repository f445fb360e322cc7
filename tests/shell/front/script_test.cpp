#include "shell/scripts/script.h"
#include "shell/scripts/parameters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "protocol/error.h"

using namespace lockstep;
using namespace lockstep::shell;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

namespace {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "lockstep-script-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  std::string write(const std::string& name, const std::string& content) const {
    std::ofstream(path_ / name, std::ios::binary) << content;
    return (path_ / name).string();
  }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

std::string usage_error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no UsageError";
}

std::string script_error(const std::string& text) {
  return usage_error_of([&] { parse_script(text, "s.cpp"); });
}

std::string notebook_error(const std::string& text) {
  return usage_error_of([&] { parse_notebook(text, "n.ipynb"); });
}

}  // namespace

TEST(Script, CutsCellsAtMarkers) {
  const auto cells = parse_script(
      "// a header that no cell needs\n\n"
      "// %% [markdown]\n// # Title\n//\n// text\n"
      "// %% wrong on purpose tags=[\"expects-finding=verify:mismatch\", \"mine\"] answer=42\n\nint a = 1;\nint b;\n\n"
      "// %%\nint c;\n",
      "s.cpp");
  ASSERT_EQ(cells.size(), 3u);
  EXPECT_TRUE(cells[0].markdown);
  EXPECT_EQ(cells[0].text, "# Title\n\ntext");
  EXPECT_EQ(cells[0].line, 4);
  EXPECT_EQ(cells[1].title, "wrong on purpose");
  ASSERT_EQ(cells[1].tags.size(), 2u);
  EXPECT_EQ(cells[1].tags[0].name, "expects-finding");
  EXPECT_EQ(cells[1].tags[0].value, "verify:mismatch");
  EXPECT_EQ(cells[1].tags[1].name, "mine");
  EXPECT_EQ(cells[1].metadata.at("answer"), "42");
  EXPECT_EQ(cells[1].text, "int a = 1;\nint b;");
  EXPECT_EQ(cells[1].line, 9);
  EXPECT_EQ(cells[2].text, "int c;");
}

TEST(Script, TextBeforeTheFirstMarkerIsACell) {
  const auto cells = parse_script("/* licence */\nint a;\n// %%\nint b;\n", "s.cpp");
  ASSERT_EQ(cells.size(), 2u);
  EXPECT_EQ(cells[0].text, "/* licence */\nint a;");
  EXPECT_EQ(parse_script("/* only\n comments */ // here\n// %%\nint b;\n", "s.cpp").size(), 1u);
  EXPECT_EQ(parse_script("int whole_file;\n", "s.cpp").size(), 1u);
}

TEST(Script, MarkersNeedABlank) {
  const auto cells = parse_script("// %%time x\nint a;\n//%% no\n// %%\n", "s.cpp");
  ASSERT_EQ(cells.size(), 1u);
  EXPECT_THAT(cells[0].text, HasSubstr("int a;"));
}

TEST(Script, ReadsWhatItWrites) {
  const std::string text =
      "// %% [markdown]\n// # Title\n//\n// text\n\n// %% a title tags=[\"raises-exception\"] note=\"two words\"\nint "
      "a;\n\nint b;\n\n"
      "// %%\n%%rank [0]\nint c;\n";
  EXPECT_EQ(format_script(parse_script(text, "s.cpp")), text);
}

TEST(Script, LinesThatWouldBeginACellAreMovedAndNamed) {
  for (const auto& [sign, language] : {std::pair{"// %%", Language::cpp}, {"# %%", Language::python}}) {
    const std::vector<ScriptCell> cells = {
        {.text = "int a;", .number = 1},
        {.text = "auto text = R\"(\n" + (sign + std::string(" x\n)\";")), .number = 4},
        {.text = "%%writefile a\n" + std::string(sign)}};
    const auto again = parse_script(format_script(cells, language), "s", language);
    ASSERT_EQ(again.size(), 3u);
    EXPECT_EQ(again[1].text, "auto text = R\"(\n " + (sign + std::string(" x\n)\";")));
    EXPECT_EQ(moved_markers(cells, language),
              "; cell 2 has the line '" + std::string(sign) +
                  " x', which would begin a cell and has a blank before it now; a cell of magics has the line '" +
                  sign + "', which would begin a cell and has a blank before it now");
    EXPECT_EQ(moved_markers(again, language), "");
  }
}

TEST(Script, ValuesWithOtherNumbersAreNamed) {
  const std::vector<ScriptCell> cells = {
      {.text = "30", .number = 1},
      {.text = "40 + _1", .number = 3},
      {.text = "%who"},
      {.markdown = true, .text = "_3"},
      {.text = "_3 + _3 + _2 + _1; // _3\n\"_3\"; std::placeholders::_3; net._3; _03; _9", .number = 4},
      {.text = "_3", .number = 6}};
  EXPECT_EQ(
      shifted_values(cells),
      "; cell 3 uses _3, which is _2 there; cell 3 uses _2, which is not there; cell 4 uses _3, which is _2 there");
}

TEST(Script, LinesThatOnlyLookDoNotRunAgain) {
  EXPECT_TRUE(only_looks("%detach 1h"));
  EXPECT_TRUE(only_looks("%load"));
  EXPECT_FALSE(only_looks("%loads a"));
  EXPECT_FALSE(only_looks("load"));
  EXPECT_EQ(without_looking("%load a.cpp\nint z = a;\n// %undo\nz", Language::cpp), "\nint z = a;\n\nz");
  EXPECT_EQ(without_looking("x = 1\n%load a.py", Language::python), "x = 1\n");
  EXPECT_EQ(without_looking("\n// %load a.cpp\n", Language::cpp), "");
  for (const char* same : {"int a;\n", "auto s = R\"(\n%load a\n)\";", "%rank 0\nint b;", "%%writefile a\n%load b"})
    EXPECT_EQ(without_looking(same, Language::cpp), same);
}

TEST(Script, TitlesMayHoldSigns) {
  const auto cells = parse_script("// %% a == b, 50% [sure]\nint a;\n", "s.cpp");
  EXPECT_EQ(cells.at(0).title, "a == b, 50% [sure]");
}

TEST(Script, BadMarkersNameTheLineAndTheMend) {
  EXPECT_THAT(script_error("int a;\n// %% x tags=[raises-exception]\n"),
              AllOf(StartsWith("s.cpp:2: "), HasSubstr("tags=[\"raises-exception\"]")));
  EXPECT_THAT(script_error("// %% tags=\"raises-exception\"\n"),
              AllOf(StartsWith("s.cpp:1: "), HasSubstr("is not a list")));
  EXPECT_THAT(script_error("// %% tags=[\"raises-exceptions\"]\n"), HasSubstr("did you mean raises-exception?"));
  EXPECT_THAT(script_error("// %% tags=[\"expects-finding=verify\"]\n"), HasSubstr("INSPECTOR:VERDICT"));
  EXPECT_THAT(script_error("// %% tags=[1]\n"), HasSubstr("is not a word in quotes"));
  EXPECT_THAT(script_error("// %% tags=[\"a\n"), HasSubstr("is not a list"));
  EXPECT_THAT(script_error("// %% lr=0.1 title\n"), AllOf(HasSubstr("'title'"), HasSubstr("put a title before")));
  EXPECT_THAT(script_error("// %% key=word\n"), HasSubstr("key=\"...\""));
}

TEST(Script, EmptyScriptsSaySo) {
  EXPECT_THAT(script_error(""), AllOf(StartsWith("s.cpp: is empty"), HasSubstr("// %%")));
  EXPECT_THAT(script_error(" \n\n"), HasSubstr("is empty"));
  EXPECT_THAT(script_error("// only a comment\n"), HasSubstr("has no cell"));
}

TEST(Script, BadFilesSaySo) {
  const TemporaryFolder folder;
  folder.write("lesson.cpp", "int a;\n");
  EXPECT_THAT(usage_error_of([&] { read_script(folder / "lessno.cpp"); }),
              AllOf(HasSubstr("there is no such file"), HasSubstr("did you mean " + folder / "lesson.cpp?")));
  EXPECT_THAT(usage_error_of([&] { read_script(folder / ""); }), HasSubstr("is a folder"));
  EXPECT_THAT(usage_error_of([&] { read_script(folder.write("a.cpp", std::string("int\0a", 5))); }),
              AllOf(HasSubstr("is not text (a zero byte at offset 3)"), HasSubstr("session script")));
  EXPECT_THAT(usage_error_of([&] { read_script(folder.write("b.cpp", "int a;\n// caf\xE9\n")); }),
              HasSubstr("b.cpp:2: is not UTF-8"));
  EXPECT_THAT(usage_error_of([&] { read_script(folder.write("c.cpp", "")); }), HasSubstr("is empty"));
}

TEST(Script, LineEndsAndByteOrderMarksOfOtherSystems) {
  const TemporaryFolder folder;
  const auto cells = read_script(folder.write("a.cpp", "\xEF\xBB\xBF// %% t\r\nint a;\r\nint b;\r\n"));
  ASSERT_EQ(cells.size(), 1u);
  EXPECT_EQ(cells[0].title, "t");
  EXPECT_EQ(cells[0].text, "int a;\nint b;");
}

TEST(Script, MarkdownMayStandInOneComment) {
  EXPECT_EQ(parse_script("// %% [markdown]\n/* # A\n\ntext */\n", "s.cpp").at(0).text, "# A\n\ntext");
  EXPECT_EQ(parse_script("// %% [markdown]\n/*\n\n    code\n    more\n*/\n", "s.cpp").at(0).text, "    code\n    more");
  EXPECT_EQ(parse_script("// %% [markdown]\n/* \n */\n// %%\nint a;", "s.cpp").at(0).text, "int a;");
}

TEST(Script, ParametersAreTheVariablesThatACellDeclares) {
  const auto injected = [](const std::string& code) {
    const auto cells =
        with_parameters(parse_script("// %% tags=[\"parameters\"]\n" + code, "a.cpp"), {{"epochs", "3"}});
    return cells.size() > 1 ? cells[1].text : "";
  };
  for (const char* code : {"int epochs = 1;", "int epochs{1};", "int k = 2, epochs /* how many */ = 1;"})
    EXPECT_EQ(injected(code), "epochs = arg(\"epochs\", epochs);  // 3") << code;
  for (const char* code : {"// epochs = 1\nint k;", "auto s = \"epochs = 1\";", "epochs == 1", "int my_epochs = 1;"})
    EXPECT_EQ(injected(code), "") << code;
}

TEST(Script, ParametersOfPython) {
  const auto cells = with_parameters(parse_script("# %% tags=[\"parameters\"]\nepochs = 1\n", "a.py", Language::python),
                                     {{"epochs", "3"}, {"other", "4"}}, Language::python);
  ASSERT_EQ(cells.size(), 2u);
  EXPECT_EQ(cells[1].text, "epochs = arg(\"epochs\", epochs)  # 3");
}

TEST(Script, LanguagesOfFiles) {
  const TemporaryFolder folder;
  const auto notebook = [&](const std::string& name, const std::string& metadata) {
    return folder.write(name, R"({"nbformat": 4, "cells": [], "metadata": )" + metadata + "}");
  };
  EXPECT_EQ(language_of_script("a.py"), Language::python);
  EXPECT_EQ(language_of_script("a.cpp"), Language::cpp);
  EXPECT_EQ(language_of_script(notebook("a.ipynb", R"({"kernelspec": {"name": "python3", "language": "python"}})")),
            Language::python);
  EXPECT_EQ(
      language_of_script(notebook("b.ipynb", R"({"kernelspec": {"name": "lockstep-python", "language": "python"}})")),
      Language::python);
  EXPECT_EQ(language_of_script(notebook("c.ipynb", R"({"kernelspec": {"name": "lockstep", "language": "c++20"}})")),
            Language::cpp);
  EXPECT_EQ(language_of_script(notebook("d.ipynb", "{}")), Language::cpp);
  EXPECT_EQ(language_of_script(folder.write("e.ipynb", "no JSON")), Language::cpp);
  EXPECT_EQ(language_of_script("/nowhere.ipynb"), Language::cpp);
}

TEST(Notebook, CellsWithTagsAndTitles) {
  const auto cells = parse_notebook(R"({"nbformat": 4, "nbformat_minor": 5,
      "metadata": {"kernelspec": {"name": "lockstep", "language": "C++20"}},
      "cells": [{"cell_type": "markdown", "metadata": {}, "source": ["# Title\n", "text"]},
                {"cell_type": "raw", "metadata": {}, "source": "left out"},
                {"cell_type": "code", "metadata": {"tags": ["raises-exception"], "title": "boom"}, "source": "throw 1;"},
                {"cell_type": "code", "metadata": {}, "source": []}]})",
                                    "n.ipynb");
  ASSERT_EQ(cells.size(), 2u);
  EXPECT_TRUE(cells[0].markdown);
  EXPECT_EQ(cells[0].text, "# Title\ntext");
  EXPECT_EQ(cells[1].text, "throw 1;");
  EXPECT_EQ(cells[1].title, "boom");
  EXPECT_EQ(cells[1].tags.at(0).name, "raises-exception");
}

TEST(Notebook, BrokenOnesNameThePlaceAndTheMend) {
  EXPECT_THAT(notebook_error("{\"nbformat\": 4,\n \"cells\": [}"),
              AllOf(StartsWith("n.ipynb:2: "), HasSubstr("column 12"), HasSubstr("restore it")));
  EXPECT_THAT(notebook_error(""), HasSubstr("is empty"));
  EXPECT_THAT(notebook_error("[1]"), HasSubstr("no notebook"));
  EXPECT_THAT(notebook_error(R"({"nbformat": 3, "worksheets": []})"), HasSubstr("format 3"));
  EXPECT_THAT(notebook_error(R"({"nbformat": 4})"), HasSubstr("\"cells\""));
  EXPECT_THAT(notebook_error(R"({"nbformat": 4, "cells": [{"cell_type": "code", "source": 5}]})"),
              HasSubstr("cell 1 of the notebook"));
  EXPECT_THAT(notebook_error(R"({"nbformat": 4, "cells": []})"), HasSubstr("has no cell"));
}

TEST(Notebook, OfAnotherKernelIsRefused) {
  EXPECT_THAT(
      notebook_error(
          R"({"nbformat": 4, "metadata": {"kernelspec": {"name": "python3", "language": "python"}}, "cells": []})"),
      AllOf(HasSubstr("kernel 'python3' (python)"), HasSubstr("`lockstep run` takes Python cells by themselves"),
            HasSubstr("kernel Lockstep")));
  EXPECT_THAT(notebook_error(R"({"nbformat": 4, "metadata": {"language_info": {"name": "julia"}}, "cells": []})"),
              HasSubstr("julia"));
  EXPECT_EQ(parse_notebook(R"({"nbformat": 4, "metadata": {"kernelspec": {"name": "xcpp20", "language": "C++20"}},
      "cells": [{"cell_type": "code", "source": "int a;"}]})",
                           "n.ipynb")
                .size(),
            1u);
}

TEST(Notebook, OfPythonIsForPythonJobs) {
  const auto notebook = [](const std::string& metadata) {
    return R"({"nbformat": 4, "metadata": )" + metadata +
           R"(, "cells": [{"cell_type": "code", "source": "%verify model\nmodel"}]})";
  };
  for (const char* metadata :
       {R"({"kernelspec": {"name": "python3", "language": "python"}})", R"({"kernelspec": {"name": "python3"}})",
        R"({"language_info": {"name": "python"}})", "{}"}) {
    const auto cells = parse_notebook(notebook(metadata), "n.ipynb", Language::python);
    ASSERT_EQ(cells.size(), 1u) << metadata;
    EXPECT_EQ(cells[0].text, "%verify model\nmodel");
  }
  EXPECT_THAT(usage_error_of([&] {
                parse_notebook(notebook(R"({"kernelspec": {"name": "lockstep", "language": "c++"}})"), "n.ipynb",
                               Language::python);
              }),
              AllOf(HasSubstr("kernel 'lockstep'"), HasSubstr("have to be Python")));
}
