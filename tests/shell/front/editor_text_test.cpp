// Session scripts as clangd sees them, and the messages between an editor and clangd.
#include "shell/scripts/editor_text.h"

#include <gtest/gtest.h>

#include "shell/commands/clangd_proxy.h"

using namespace lockstep::shell;
using nlohmann::json;

namespace {

/// The translation, without the line of the namespace and the last one.
std::string translated(std::string_view script) {
  const EditorText text(script, MagicRegistry::instance());
  const std::string begin = "namespace lockstep_script_0 { \n";
  const size_t at = text.text().find(begin);
  EXPECT_NE(at, std::string::npos) << text.text();
  const size_t last = text.text().rfind("\n}");
  return text.text().substr(0, at) + text.text().substr(at + begin.size(), last - at - begin.size());
}

std::string in_function(int number, const std::string& statements) {
  return "void lockstep_statements_" + std::to_string(number) + "() { " + statements + " ;}";
}

TEST(EditorText, StatementsBecomeFunctionsAndMagicsBlanks) {
  EXPECT_EQ(
      translated("// %% a\nint x = 1;\nx = 2;\nx + 1\n// %% b\n%verify x\n// %rank 0\nint y = x;\n"),
      "       \nint x = 1;\n" + in_function(1, "x = 2;\nx + 1") + "\n       \n         \n          \nint y = x;\n");
}

TEST(EditorText, ABackslashContinuesACommentAsForTheCompiler) {
  for (const std::string end : {"\\", "\\ ", "\\\r"})
    EXPECT_EQ(translated("// %%\n// in C:\\data" + end + "\nx = 1;\ny = 2;\n"),
              "     \n// in C:\\data" + end + "\nx = 1;\n" + in_function(1, "y = 2;") + "\n");
}

TEST(EditorText, WhatIsADeclaration) {
  for (const std::string declaration :
       {"std::vector<std::pair<int, long>> v;", "unsigned long n = 3;", "auto [a, b] = pair;", "torch::Tensor t{};",
        "const auto& r = x;", "Net* net = new Net;", "torch::nn::Linear fc(2, 3);", "using T = int;",
        "template <class T>\nT twice(T x) { return x + x; }",
        "torch::Tensor Net::forward(torch::Tensor x) { return x; }", "Net::Net() : a{1}, b(2) { f(); }",
        "struct A { int x; } object;", "enum class Color { red };",
        "std::ostream& operator<<(std::ostream& s, const A& a) { return s; }", "auto f() -> int { return 1; }",
        "TORCH_MODULE(Layer);", "static_assert(sizeof(int) == 4);", "decltype(x) z = x;", "namespace mine { int q; }"})
    EXPECT_EQ(translated("// %%\n" + declaration), "     \n" + declaration);
  for (const std::string statement : {"x = 1;",
                                      "f(x);",
                                      "a.b().c();",
                                      "++x;",
                                      "*p = 3;",
                                      "std::cout << x << '\\n';",
                                      "{ int inner = 1; }",
                                      "if (a) b(); else { c(); }",
                                      "for (auto& x : v) { f(x); }",
                                      "do { f(); } while (g());",
                                      "a < b",
                                      "int(3)",
                                      "try { f(); } catch (...) { }",
                                      "TORCH_CHECK(a < b, \"text; }\");",
                                      "throw 1;",
                                      "\"text\"",
                                      "[&] { f(); }();",
                                      "std::vector<int>{1, 2}.size()",
                                      "x ? y : z",
                                      "net->train();",
                                      "1'000 + 2"})
    EXPECT_EQ(translated("// %%\n" + statement), "     \n" + in_function(1, statement));
}

TEST(EditorText, ItemsOfManyKindsFollowOneAnother) {
  EXPECT_EQ(translated("// %%\nvoid f() { g(); }\n{ f(); }\nint a = 1; a = 2; int b = 3;\n"),
            "     \nvoid f() { g(); }\n" + in_function(1, "{ f(); }") + "\nint a = 1; " + in_function(2, "a = 2;") +
                " int b = 3;\n");
}

TEST(EditorText, ANameThatIsDefinedAgainGetsANamespace) {
  EXPECT_EQ(translated("// %%\nint x;\n// %%\ndouble x;\n"),
            "     \nint x;\n     \nnamespace lockstep_script_1 { double x;\n");
  const auto spaces = [](const std::string& script) {
    int count = 0;
    const std::string text = translated(script);
    for (size_t at = 0; (at = text.find("namespace lockstep_script_", at)) != std::string::npos; ++at) ++count;
    return count;
  };
  EXPECT_EQ(spaces("// %%\nvoid f(int) {}\nvoid f(double) {}\n"), 0);  // overloads
  EXPECT_EQ(spaces("// %%\nvoid f(int) {}\nvoid f(int) {}\n"), 1);
  EXPECT_EQ(spaces("// %%\nstruct A;\nstruct A {};\n"), 0);
  EXPECT_EQ(spaces("// %%\nstruct A {};\nstruct A { int a; };\n"), 1);
  EXPECT_EQ(spaces("// %%\nint a = 1, b = 2;\nint b = 3;\n"), 1);
  EXPECT_EQ(spaces("// %%\ntemplate <class T> struct B {};\ntemplate <> struct B<int> {};\n"), 0);
}

TEST(EditorText, AnOverloadKeepsTheOthers) {
  const std::string text =
      translated("// %%\nvoid f(int) {}\nint x;\n// %%\nint x;\nvoid f(double) {}\nvoid f(char) {}\n");
  EXPECT_NE(text.find("using lockstep_script_0::f; void f(double) {}"), std::string::npos) << text;
}

TEST(EditorText, IncludesComeFirstAndLibrariesStayOutside) {
  const std::string text = translated("// %%\nint x;\n#include <fstream>\nnamespace std { int y; }\n");
  EXPECT_TRUE(text.starts_with("#include <fstream>\n")) << text;
  EXPECT_NE(text.find("} namespace std { int y; } namespace lockstep_script_0 { "), std::string::npos) << text;
}

TEST(EditorText, LambdasOfCellsCaptureNothing) {
  EXPECT_EQ(translated("// %%\nauto f = [&](int i) { return [=] { return i; }; };"),
            "     \nauto f = [ ](int i) { return [=] { return i; }; };");
  EXPECT_EQ(translated("// %%\nauto f = [&, n = 1] { return n; };"), "     \nauto f = [   n = 1] { return n; };");
}

TEST(EditorText, EveryPositionComesBack) {
  const std::string script =
      "// %% ä\n#include <map>\nint x = 1; x = 2; \"ä😀\"; int x = 3;\n%verify x\nf(x\n// %% [markdown]\n// text\n// "
      "%%\n}})\n\"";
  const EditorText text(script, MagicRegistry::instance());
  int line = 0, character = 0;
  for (const char c : script) {
    const EditorPosition there = text.to_file({line, character}), here = text.to_script(there);
    EXPECT_EQ(here.line, line);
    EXPECT_EQ(here.character, character) << "line " << line;
    if ((c & 0xc0) != 0x80) ++character;
    if (c == '\n') character = 0, ++line;
  }
  EXPECT_EQ(text.to_script({0, 5}).line, 1);  // the #include
  // What is inserted before a word moves its first character; what is inserted after one does not move its end.
  const EditorText indented("// %%\n  f(x)\n", MagicRegistry::instance());
  EXPECT_EQ(indented.to_file({1, 2}).character, 2 + 31);
  EXPECT_EQ(indented.to_file({1, 6}).character, 6 + 31);
}

TEST(EditorText, AnyTextIsTranslated) {
  for (const std::string_view script :
       {"", "// %%", "// %%\n%", "// %%\n(((", "// %%\n}}}", "// %%\nR\"x(", "// %%\n#", "// %%\n#include", "// %%\n'",
        "// %%\n/*", "// %%\ntemplate <", "// %%\n[[", "// %%\nstruct", "// %%\nauto [", "// %%\nauto f = [&",
        "// %%\nauto f = [=", "// %%\n\\", "// %%\nusing\n%%nothing\nx"})
    EXPECT_FALSE(EditorText(script, MagicRegistry::instance()).text().empty());
}

json opened(const std::string& uri, const std::string& text) {
  return {{"method", "textDocument/didOpen"}, {"params", {{"textDocument", {{"uri", uri}, {"text", text}}}}}};
}

TEST(ClangdProxy, ScriptsAreTranslatedAndOtherFilesAreNot) {
  ClangdProxy proxy({"-std=c++20"});
  const json plain = opened("file:///a.h", "int x;");
  EXPECT_EQ(proxy.from_editor(plain).to_clangd, std::vector<json>{plain});
  const auto sent = proxy.from_editor(opened("file:///a%20b.cpp", "// %%\n1 + 1\n")).to_clangd;
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_EQ(sent[0]["params"]["settings"]["compilationDatabaseChanges"]["/a b.cpp"]["compilationCommand"],
            json::array({"clang++", "-std=c++20", "/a b.cpp"}));
  EXPECT_NE(sent[1]["params"]["textDocument"]["text"].get<std::string>().find("lockstep_statements_1"),
            std::string::npos);
}

TEST(ClangdProxy, PositionsAreThoseOfTheScript) {
  ClangdProxy proxy({});
  proxy.from_editor(opened("file:///s.cpp", "// %%\nf(1)\n"));
  const json here = {{"line", 1}, {"character", 2}}, there = {{"line", 2}, {"character", 33}};
  const auto asked =
      proxy.from_editor({{"id", 1},
                         {"method", "textDocument/hover"},
                         {"params", {{"textDocument", {{"uri", "file:///s.cpp"}}}, {"position", here}}}});
  EXPECT_EQ(asked.to_clangd.at(0)["params"]["position"], there);
  const json range = {{"start", there}, {"end", there}}, back = {{"start", here}, {"end", here}};
  const auto answered = proxy.from_clangd(
      {{"id", 1}, {"result", {{"range", range}, {"contents", "// In namespace lockstep_script_0\nint f(int)"}}}});
  EXPECT_EQ(answered.to_editor.at(0)["result"], (json{{"range", back}, {"contents", "int f(int)"}}));
  const auto told = proxy.from_clangd(
      {{"method", "textDocument/publishDiagnostics"},
       {"params",
        {{"uri", "file:///s.cpp"},
         {"diagnostics",
          {{{"range", range},
            {"relatedInformation", {{{"location", {{"uri", "file:///other.h"}, {"range", range}}}}}}}}}}}});
  const json& diagnostic = told.to_editor.at(0)["params"]["diagnostics"][0];
  EXPECT_EQ(diagnostic["range"], back);
  EXPECT_EQ(diagnostic["relatedInformation"][0]["location"]["range"], range);
  const auto format = proxy.from_editor(
      {{"id", 2}, {"method", "textDocument/formatting"}, {"params", {{"textDocument", {{"uri", "file:///s.cpp"}}}}}});
  EXPECT_TRUE(format.to_clangd.empty());
  EXPECT_EQ(format.to_editor.at(0), (json{{"jsonrpc", "2.0"}, {"id", 2}, {"result", nullptr}}));
}

TEST(ClangdProxy, TextsAreSentInFullAndClosedScriptsAreForgotten) {
  ClangdProxy proxy({});
  proxy.from_editor({{"id", 1}, {"method", "initialize"}, {"params", json::object()}});
  const auto answer =
      proxy.from_clangd({{"id", 1}, {"result", {{"capabilities", {{"textDocumentSync", {{"change", 2}}}}}}}});
  EXPECT_EQ(answer.to_editor.at(0)["result"]["capabilities"]["textDocumentSync"]["change"], 1);
  proxy.from_editor(opened("file:///s.cpp", "// %%\n1\n"));
  const auto changed = proxy.from_editor(
      {{"method", "textDocument/didChange"},
       {"params", {{"textDocument", {{"uri", "file:///s.cpp"}}}, {"contentChanges", {{{"text", "// %%\n2\n"}}}}}}});
  EXPECT_NE(changed.to_clangd.at(0)["params"]["contentChanges"][0]["text"].get<std::string>().find("{ 2 ;}"),
            std::string::npos);
  proxy.from_editor({{"method", "textDocument/didClose"}, {"params", {{"textDocument", {{"uri", "file:///s.cpp"}}}}}});
  const json hover = {
      {"id", 3},
      {"method", "textDocument/hover"},
      {"params", {{"textDocument", {{"uri", "file:///s.cpp"}}}, {"position", {{"line", 1}, {"character", 0}}}}}};
  EXPECT_EQ(proxy.from_editor(hover).to_clangd, std::vector<json>{hover});
}

}  // namespace
