// A list of cells and what each has to print, in one session.
#pragma once
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/compiler/cell_session.h"

namespace lockstep::compiler_test {

struct Line {
  std::string cell;
  std::string expected;  // all of what is printed; "error: TEXT" for a compile error that contains TEXT
};

/// Ranks must agree. A compile error must not show anything that the compiler made up.
inline void check_transcript(CellSession& session, const std::vector<Line>& lines) {
  ASSERT_EQ(session.failure(), "");
  for (const auto& [cell, expected] : lines) {
    SCOPED_TRACE("cell " + std::to_string(session.cells() + 1) + ": " + cell);
    const auto outcome = session.run(cell);
    if (expected.starts_with("error: ")) {
      EXPECT_EQ(outcome.compiled.status, CompileStatus::error);
      EXPECT_NE(outcome.compiled.rendered.find(expected.substr(7)), std::string::npos) << outcome.compiled.rendered;
    } else {
      EXPECT_EQ(outcome.text(), expected);
    }
    EXPECT_EQ(outcome.compiled.rendered.find("__cell"), std::string::npos) << outcome.compiled.rendered;
    EXPECT_EQ(outcome.compiled.rendered.find(session.directory()), std::string::npos) << outcome.compiled.rendered;
  }
}

inline void check_transcript(const std::vector<Line>& lines, int ranks = 1) {
  SessionSettings settings;
  settings.ranks = ranks;
  CellSession session(settings);
  check_transcript(session, lines);
}

}  // namespace lockstep::compiler_test
