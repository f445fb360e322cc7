// The parts of the line editor that need no terminal.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shell/terminal/candidate_menu.h"
#include "shell/terminal/edit_buffer.h"
#include "shell/terminal/edit_view.h"
#include "shell/terminal/highlight.h"
#include "shell/terminal/key_decoder.h"

namespace lockstep::shell {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(EditBuffer, MovesByCharactersAndNotByBytes) {
  EditBuffer buffer;
  buffer.reset("aé́漢");  // e with two accents
  buffer.move_left();
  EXPECT_EQ(buffer.before_cursor(), "aé́");
  buffer.move_left();
  EXPECT_EQ(buffer.before_cursor(), "a");
  buffer.erase_at();
  EXPECT_EQ(buffer.text(), "a漢");
  buffer.move_right();
  buffer.erase_before();
  EXPECT_EQ(buffer.text(), "a");
}

TEST(EditBuffer, KeepsTheColumnOverShortLines) {
  EditBuffer buffer;
  buffer.reset("long line\n\nanother one", 6);
  EXPECT_TRUE(buffer.move_lines(1));
  EXPECT_EQ(buffer.cursor(), 10u);
  EXPECT_TRUE(buffer.move_lines(1));
  EXPECT_EQ(buffer.before_cursor(), "long line\n\nanothe");
  EXPECT_FALSE(buffer.move_lines(1));
  EXPECT_TRUE(buffer.move_lines(-99));
  EXPECT_EQ(buffer.before_cursor(), "long l");
}

TEST(EditBuffer, UndoesWordsAndKeepsWhatWasCut) {
  EditBuffer buffer;
  for (const char* c : {"o", "n", "e", " ", "t", "w", "o"}) buffer.insert(c);
  EXPECT_TRUE(buffer.undo());
  EXPECT_EQ(buffer.text(), "one");
  EXPECT_TRUE(buffer.redo());
  buffer.cut_word_before();
  buffer.cut_word_before();
  EXPECT_EQ(buffer.text(), "");
  buffer.yank();
  EXPECT_EQ(buffer.text(), "one two");
  while (buffer.undo()) {
  }
  EXPECT_EQ(buffer.text(), "");
}

std::vector<Key::Kind> kinds(KeyDecoder& keys) {
  std::vector<Key::Kind> result;
  while (const auto key = keys.next()) result.push_back(key->kind);
  return result;
}

TEST(KeyDecoder, SequencesComeInPieces) {
  KeyDecoder keys;
  for (const char* piece : {"\033", "[", "1;5", "D\033[A\x12", "\xC3"}) keys.feed(piece);
  EXPECT_THAT(kinds(keys), ElementsAre(Key::Kind::word_left, Key::Kind::up, Key::Kind::control));
  EXPECT_TRUE(keys.is_waiting());
  keys.feed("\xA9x");
  EXPECT_EQ(keys.next()->text, "éx");
  keys.feed("\033");
  EXPECT_FALSE(keys.next());
  EXPECT_EQ(keys.next(/*is_over=*/true)->kind, Key::Kind::escape);
  keys.feed("\033\r\033f\xFF\xFE!");
  EXPECT_EQ(keys.next()->kind, Key::Kind::alt_enter);
  EXPECT_EQ(keys.next()->letter, 'f');
  EXPECT_THAT(keys.next(true)->text, HasSubstr("\xEF\xBF\xBD"));
}

TEST(KeyDecoder, APasteIsOneKey) {
  KeyDecoder keys;
  keys.feed("\033[200~a\r\nb\rc\t\033[31m\x01");
  EXPECT_FALSE(keys.next());
  EXPECT_FALSE(keys.is_waiting());
  keys.feed("\033[20");
  EXPECT_FALSE(keys.next());
  keys.feed("1~\r");
  const auto paste = keys.next();
  EXPECT_EQ(paste->kind, Key::Kind::paste);
  EXPECT_EQ(paste->text, "a\nb\nc\t[31m");
  EXPECT_EQ(keys.next()->kind, Key::Kind::enter);
}

std::string styled(std::string_view text, Style style) {
  std::string found;
  for (const Token& token : tokens_of(text))
    if (token.style == style)
      found += (found.empty() ? "" : "|") + std::string(text.substr(token.begin, token.end - token.begin));
  return found;
}

TEST(Highlight, TokensOfACell) {
  const std::string text =
      "%%rank 0 --all  // some\n#include <vector>\nfor (auto x : R\"(a\n\"b)\") f(1'000, 0x1F, 'c', u8\"s\"); /* a\nb "
      "*/ int y;\n%sync\n";
  EXPECT_EQ(styled(text, Style::magic), "%%rank|%sync");
  EXPECT_EQ(styled(text, Style::directive), "#include");
  EXPECT_EQ(styled(text, Style::keyword), "for");
  EXPECT_EQ(styled(text, Style::string), "<vector>|R\"(a\n\"b)\"|'c'|u8\"s\"");
  EXPECT_EQ(styled(text, Style::number), "0|1'000|0x1F");
  EXPECT_EQ(styled(text, Style::comment), "// some|/* a\nb */");
  EXPECT_EQ(styled(text, Style::type_name), "--all|auto|int");
  EXPECT_EQ(styled("// in C:\\data\\\nint k;\nint l;", Style::type_name), "int");
  EXPECT_EQ(styled("# include <a'b>\n/* */ #define x 1e+5 ret\\\nurn\n%rank 0 f(-1) -> #", Style::directive),
            "# include|#define");
  EXPECT_EQ(styled("re\\\nturn 1e+5 + 0x1.8p-3;", Style::number), "1e+5|0x1.8p-3");
  EXPECT_EQ(styled("re\\\nturn 1;", Style::keyword), "re\\\nturn");
  for (const char* open : {"\"", "R\"x(", "/*", "'", "\\", "%", "#", "1e", "\xFF", "%%", "#include <"})
    EXPECT_LE(tokens_of(open).size(), 3u) << open;
}

TEST(Highlight, BracketsThatBelongTogether) {
  const std::string text = "f(a[\"(\"], {1}) // )";
  const auto match = [&](size_t cursor) { return matching_brackets(text, tokens_of(text), cursor); };
  EXPECT_EQ(match(1), std::pair(size_t{1}, size_t{14 - 1}));
  EXPECT_EQ(match(14), std::pair(size_t{1}, size_t{13}));
  EXPECT_EQ(match(3), std::pair(size_t{3}, size_t{7}));
  EXPECT_FALSE(match(5));
  EXPECT_FALSE(match(text.size()));
  EXPECT_FALSE(matching_brackets("(]", {}, 0));
}

EditPicture picture_of(std::string_view text, size_t cursor) {
  EditPicture picture;
  picture.prompt = "> ";
  picture.continuation = ". ";
  picture.text = text;
  picture.cursor = cursor;
  return picture;
}

std::string rows_of(const Frame& frame) {
  std::string text;
  for (const Row& row : frame.rows) text += row.bytes + "\n";
  return text;
}

TEST(EditView, WrapsAndPlacesTheCursor) {
  const Screen screen{.terminal = true, .unicode = true, .width = 6, .height = 20};
  size_t first = 0;
  Frame frame = frame_of(picture_of("abcd漢e\n\tx", 4), screen, first);
  EXPECT_EQ(rows_of(frame), "> abcd\n漢e\n.   x\n");
  EXPECT_EQ(frame.cursor_row, 1u) << "the end of a full row is the begin of the next";
  EXPECT_EQ(frame.cursor_column, 0);
  frame = frame_of(picture_of("abcd", 4), screen, first);
  EXPECT_EQ(rows_of(frame), "> abcd\n\n");
  frame = frame_of(picture_of("abc漢", 3), screen, first);
  EXPECT_EQ(rows_of(frame), "> abc\n漢\n");
  EXPECT_EQ(frame.cursor_row, 1u) << "where the wide character is";
}

TEST(EditView, ATallCellIsShownAroundTheCursor) {
  const Screen screen{.terminal = true, .unicode = true, .width = 40, .height = 4};
  const std::string text = "1\n2\n3\n4\n5\n6\n7";
  size_t first = 0;
  EXPECT_EQ(rows_of(frame_of(picture_of(text, 0), screen, first)), "> 1\n. 2\n. 3\n… 4 more lines below\n");
  EXPECT_EQ(rows_of(frame_of(picture_of(text, 6), screen, first)),
            "… 2 more lines above\n. 3\n. 4\n… 3 more lines below\n");
  EXPECT_EQ(rows_of(frame_of(picture_of(text, text.size()), screen, first)), "… 4 more lines above\n. 5\n. 6\n. 7\n");
  EXPECT_EQ(rows_of(frame_of(picture_of(text, 10), screen, first)), "… 4 more lines above\n. 5\n. 6\n. 7\n");
  EditPicture whole = picture_of(text, text.size());
  whole.limited = false;
  EXPECT_EQ(frame_of(whole, screen, first).rows.size(), 7u);
}

TEST(CandidateMenu, OverloadsAreOne) {
  CandidateMenu menu(
      {{"add", "function", "int add(int)"}, {"add", "function", "int add()"}, {"address", "member", ""}});
  EXPECT_EQ(menu.size(), 2u);
  EXPECT_EQ(menu.common_prefix(), "add");
  const Screen screen{.terminal = true, .unicode = true, .width = 60, .height = 20};
  EXPECT_THAT(menu.rows(screen), ElementsAre("add      int add(int) (+1 overload)", "address  member"));
  menu.select_next(-1);
  EXPECT_EQ(menu.selected(), 1u);
  EXPECT_THAT(menu.rows(screen)[1], HasSubstr("[address]"));
}

TEST(CandidateMenu, ManyStandInColumnsAndTheSelectedOneInView) {
  std::vector<protocol::Completion> many;
  for (int k = 0; k < 200; ++k) many.push_back({"name_" + std::to_string(k), "function", "int f" + std::to_string(k)});
  CandidateMenu menu(many);
  const Screen screen{.terminal = true, .unicode = true, .width = 60, .height = 20};
  EXPECT_LE(menu.rows(screen).size(), 10u);
  EXPECT_EQ(menu.rows(screen).back(), "… 155 more; Tab walks through them");
  menu.select_next(-1);
  EXPECT_THAT(menu.rows(screen), testing::Contains(HasSubstr("[name_199]")));
  EXPECT_EQ(menu.rows(screen).back(), "int f199");
}

TEST(Signatures, TheParameterStaysInView) {
  const Screen screen{.terminal = true, .unicode = true, .width = 40, .height = 20};
  const std::string label = "void f(" + std::string(100, 'a') + ", int last)";
  const auto rows = signature_rows({{label, {{7, 107}, {109, 117}}, 1}}, screen);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_THAT(rows[0], HasSubstr("<int last>"));
}

}  // namespace
}  // namespace lockstep::shell
