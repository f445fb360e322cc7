// The shell's lexer beside clang's: they find the same words, numbers, literals and comments at the same places.
#include "shell/scripts/cpp_lexer.h"

#include <clang/Lex/Lexer.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::compiler {
namespace {

using shell::CppToken;

struct Place {
  size_t begin, end;
  std::string kind;
  bool operator==(const Place&) const = default;
};

std::string kind_of(clang::tok::TokenKind kind, std::string_view text) {
  using namespace clang::tok;
  if (kind == raw_identifier) return "word";
  if (kind == numeric_constant) return "number";
  if (isStringLiteral(kind)) return "string";
  if (isLiteral(kind)) return "character";
  if (kind == comment) return "comment";
  if (kind != unknown) return "";
  // A literal that is not closed, with its prefix.
  const size_t quote = std::min(text.find('"'), text.find('\''));
  return quote == std::string_view::npos ? "" : text[quote] == '"' ? "string" : "character";
}

std::string kind_of(CppToken::Kind kind) {
  switch (kind) {
    case CppToken::word:
      return "word";
    case CppToken::number:
      return "number";
    case CppToken::string:
    case CppToken::raw_string:
      return "string";
    case CppToken::character:
      return "character";
    case CppToken::comment:
      return "comment";
    default:
      return "";
  }
}

/// The tokens of clang that are no punctuation; without those in `headers`, which clang's raw lexer does not know.
std::vector<Place> places_of_clang(const std::string& text, const std::vector<Place>& headers) {
  clang::LangOptions language;
  std::vector<std::string> includes;
  clang::LangOptions::setLangDefaults(language, clang::Language::CXX, llvm::Triple("x86_64-linux-gnu"), includes,
                                      clang::LangStandard::lang_cxx20);
  clang::Lexer lexer(clang::SourceLocation(), language, text.data(), text.data(), text.data() + text.size());
  lexer.SetCommentRetentionState(true);
  std::vector<Place> places;
  clang::Token token;
  for (lexer.LexFromRawLexer(token); token.isNot(clang::tok::eof); lexer.LexFromRawLexer(token)) {
    const auto end = static_cast<size_t>(lexer.getBufferLocation() - text.data());
    // Clang's token begins with what joins its line to the one before it.
    const size_t begin = std::min(end, text.find_first_not_of("\\ \t\f\v\r\n", end - token.getLength()));
    const std::string kind = kind_of(token.getKind(), std::string_view(text).substr(begin, end - begin));
    const bool in_header = std::any_of(headers.begin(), headers.end(), [&](const Place& header) {
      return header.begin <= begin && begin < header.end;
    });
    if (!kind.empty() && !in_header) places.push_back({begin, end, kind});
  }
  return places;
}

/// Where the lexers first differ; empty: nowhere.
std::string difference(const std::string& text) {
  std::vector<Place> ours, headers;
  shell::CppLexer lexer(text);
  while (const auto token = lexer.next()) {
    if (const std::string kind = kind_of(token->kind); token->text.starts_with('<'))
      headers.push_back({token->begin, token->end(), kind});
    else if (!kind.empty() && (token->kind != CppToken::comment || token->is_closed))  // clang leaves those out
      ours.push_back({token->begin, token->end(), kind});
  }
  const std::vector<Place> clangs = places_of_clang(text, headers);
  const auto [our, its] = std::mismatch(ours.begin(), ours.end(), clangs.begin(), clangs.end());
  const auto shown = [&](const auto& place, const auto& places) {
    return place == places.end() ? "nothing"
                                 : place->kind + " '" + text.substr(place->begin, place->end - place->begin) + "'";
  };
  if (our == ours.end() && its == clangs.end()) return "";
  const size_t at =
      std::min(our == ours.end() ? text.size() : our->begin, its == clangs.end() ? text.size() : its->begin);
  return "line " + std::to_string(1 + std::count(text.begin(), text.begin() + static_cast<ptrdiff_t>(at), '\n')) +
         ": the shell reads " + shown(our, ours) + ", clang " + shown(its, clangs);
}

TEST(CppLexer, ReadsTheTreeAsClangDoes) {
  int files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(LOCKSTEP_SOURCE_DIR)) {
    const std::filesystem::path& path = entry.path();
    if ((path.extension() != ".cpp" && path.extension() != ".h") || path.string().find("/build/") != std::string::npos)
      continue;
    std::ifstream file(path);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    EXPECT_EQ(difference(text), "") << path;
    ++files;
  }
  EXPECT_GT(files, 1000);
}

TEST(CppLexer, ReadsHardTextsAndTheirBeginningsAsClangDoes) {
  using namespace std::string_literals;
  for (const std::string& text : {
           "auto s = R\"delimiter(a)\" )delimiter\" + LR\"()\" u8R\"(\\\n)\" uR\"(x)\" UR\"(\n\n)\";\nint k;"s,
           "R\"tooooooooooooooolong(a)tooooooooooooooolong\"; \"b\"\n"s,
           "R\"a b(c)a b\" d"s,
           "in\\\nt m\\ \nain\\\t\r\n() { ret\\\nurn 0; }"s,
           "/\\\n/ comment \\\n goes on \\ \n and on\nint k; /\\\n* block *\\\n/ int l;"s,
           "// ends in C:\\data\\\nint k;\nint l;"s,
           "\"joined \\\n string\" 'a\\\n' \"\\\\\" \"\\\\\\\"\" '\\'' '\"'"s,
           "1'000'000 0b1'0 0x1.8p-3 1e+10 1.e-5f .5 0x1'f 1'a'b 5'm 12_km 1.5_m 0xe+1 1..2 1.2.3e+4.5"s,
           "\"text\"_s 'c'_c 1_n \"a\"s \"b\"sv 1ms \"x\"_a_long_suffix R\"(y)\"_s"s,
           "don't and 1' and a'b'_c"s,
           "#define A /* begins\n ends */ 1 // b \\\n goes on\n#error don't\n#if 0\nit's\n#endif\nint k;"s,
           "#include <a.h>\n#include \"b.h\" // c\n#  include_next <d'e.h>\n#include <f//g.h>\n"s,
           "?\?/\n ?\?= \"?\?/\" // ?\?/\nint k;"s,
           "a\0b \"c\0d\" '\0' /* \0 */ // \0\nint k;"s,
           "\"no end\nint k; 'no end\nint l; \"escaped end \\"s,
           "/* no end * / \n int k;"s,
           "/*/ k */ l /**/ m /***/ n"s,
           "<::a ::> %: -> ->* .* ... <=> >>= ## # a"s,
           "f(\"\xe2\x82\xac\" + '\xff' /* \xff */); // \xff\nint k;"s,
           "a\rb // c\rd \"e\rf\" \r\n\n\rg"s,
           "\f\v a \\\f\n b \\ c"s,
       })
    for (size_t size = 0; size <= text.size(); ++size) {
      const std::string beginning = text.substr(0, size);
      EXPECT_EQ(difference(beginning), "") << beginning;
    }
}

TEST(CppLexer, ReadsMixedTextsAsClangDoes) {
  const std::vector<std::string> parts = {"\\", "\\\n", "\n",  "\"", "'", "R\"(", ")\"", "(",  ")", "/",
                                          "*",  "//",   "/*",  "*/", "0", "e",    "+",   ".",  "a", "#",
                                          " ",  ";",    "\\ ", "\t", "L", "0x",   "1'",  "\r", ":", "R"};
  std::mt19937 random(1);
  for (int i = 0; i < 50000; ++i) {
    std::string text;
    for (int k = 0; k < 12; ++k) text += parts[random() % parts.size()];
    ASSERT_EQ(difference(text), "") << text;
  }
}

}  // namespace
}  // namespace lockstep::compiler
