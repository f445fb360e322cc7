#include "protocol/status.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace lockstep {
namespace {

template <typename T>
void expect_words(std::initializer_list<std::string_view> words) {
  int index = 0;
  for (const std::string_view word : words) {
    const T value = static_cast<T>(index++);
    EXPECT_EQ(to_string(value), word);
    EXPECT_EQ(from_string<T>(word), value);
    EXPECT_EQ(nlohmann::json(value), word);
    EXPECT_EQ(nlohmann::json(word).get<T>(), value);
  }
}

TEST(Status, WordsOfTheJsonStay) {
  expect_words<CellStatus>(
      {"ok", "error", "compile_error", "usage_error", "interrupted", "aborted", "timeout", "dead", "waiting"});
  expect_words<RankState>({"starting", "idle", "loading", "running", "waiting", "regrouping", "ending", "dead"});
  expect_words<Stream>({"stdout", "stderr"});
  expect_words<CompileStatus>({"ok", "error", "timeout", "crash", "cancelled"});
  expect_words<DiagnosticSeverity>({"error", "warning", "note"});
  expect_words<TextStatus>({"complete", "incomplete", "invalid"});
  expect_words<Severity>({"note", "fault"});
}

TEST(Status, AnUnknownWordIsAnErrorOfTheJson) {
  EXPECT_THROW(from_string<CellStatus>("fine"), nlohmann::json::exception);
  EXPECT_THROW(nlohmann::json("").get<Stream>(), nlohmann::json::exception);
  EXPECT_THROW(nlohmann::json(1).get<CompileStatus>(), nlohmann::json::exception);
}

}  // namespace
}  // namespace lockstep
