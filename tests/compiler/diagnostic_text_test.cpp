// How messages are put together, without a compiler.
#include "compiler/diagnostics/diagnostic_text.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace lockstep::compiler {
namespace {

std::string lines(const std::string& name, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += name + "\n";
  return text;
}

NoteText candidate(int number) {
  return {"candidate function not viable", lines("candidate " + std::to_string(number), 3)};
}

long count_lines(const std::string& text) { return std::count(text.begin(), text.end(), '\n'); }

TEST(DiagnosticText, ShortMessagesComeWhole) {
  const auto text = compose(
      {{.is_error = true, .is_here = true, .text = "error\n", .notes = {{"note", "note\n"}}}, {.text = "warning\n"}});
  EXPECT_EQ(text.brief, "error\nnote\nwarning\n");
  EXPECT_EQ(text.whole, "");
}

TEST(DiagnosticText, TheUsersLineComesFirst) {
  const auto text = compose({{.is_error = true, .text = "in a header\n", .text_here = "in the cell\n"}});
  EXPECT_EQ(text.brief, "in the cell\nin a header\n");
}

TEST(DiagnosticText, FourCandidatesAreEnough) {
  MessageGroup group{.is_error = true, .is_here = true, .text = "error\n"};
  for (int i = 0; i < 6; ++i) {
    group.notes.push_back(candidate(i));
    group.notes.push_back({"expanded from macro 'M'", "macro " + std::to_string(i) + "\n"});
  }
  group.notes.push_back({"candidate function", "of the user\n", true});
  const auto text = compose({group});
  EXPECT_NE(text.brief.find("candidate 3\nmacro 3\n"), std::string::npos) << text.brief;
  EXPECT_EQ(text.brief.find("candidate 4"), std::string::npos);
  EXPECT_EQ(text.brief.find("macro 4"), std::string::npos);
  EXPECT_NE(text.brief.find("of the user\n"), std::string::npos) << "one's own function is always shown";
  EXPECT_TRUE(text.brief.ends_with("… 2 more candidates: %errors shows everything\n")) << text.brief;
  EXPECT_NE(text.whole.find("candidate 5\ncandidate 5\ncandidate 5\nmacro 5\n"), std::string::npos);
}

TEST(DiagnosticText, AnErrorHasFortyLinesAndAllErrorsThreeTimesAsMany) {
  MessageGroup group{.is_error = true, .is_here = true, .text = "error\n"};
  for (int i = 0; i < 50; ++i) group.notes.push_back({"in instantiation", lines("note", 3)});
  EXPECT_LE(count_lines(compose({group}).brief), 42);
  const auto many = compose(std::vector<MessageGroup>(20, group));
  EXPECT_LE(count_lines(many.brief), 122);
  EXPECT_NE(many.brief.find("… 17 more errors"), std::string::npos) << many.brief;
  EXPECT_EQ(count_lines(many.whole), 20 * 151);
}

TEST(DiagnosticText, WhatOneLineBringsAboutInTemplatesIsOneMistake) {
  const auto error = [](const char* here) {
    return MessageGroup{.is_error = true, .text = "in a header\n", .text_here = here};
  };
  const auto text = compose({error("cell 1:2:3: error: first\n"),
                             error("cell 1:2:3: error: second\n"),
                             {.is_error = true, .text = "third, in the header\n"},
                             error("cell 1:4:3: error: fourth\n")});
  EXPECT_NE(text.brief.find("first"), std::string::npos);
  EXPECT_EQ(text.brief.find("second"), std::string::npos) << text.brief;
  EXPECT_EQ(text.brief.find("third"), std::string::npos) << text.brief;
  EXPECT_NE(text.brief.find("fourth"), std::string::npos);
  EXPECT_NE(text.brief.find("… 2 more errors"), std::string::npos) << text.brief;
  EXPECT_NE(text.whole.find("second"), std::string::npos);
}

TEST(DiagnosticText, AFirstMessageIsShownHoweverLongItIs) {
  EXPECT_EQ(count_lines(compose({{.is_error = true, .text = lines("error", 500)}}).brief), 500);
}

}  // namespace
}  // namespace lockstep::compiler
