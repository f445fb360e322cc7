#include "shell/terminal/shown_journal.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "shell/journal/journal_folder.h"
#include "shell/journal/record.h"

namespace lockstep::shell {
namespace {

using testing::HasSubstr;
using testing::Not;

/// A journal in which only the records of these numbers are there: cells, whose texts are "cell N".
std::string text_of_journal(const std::vector<uint64_t>& numbers, uint64_t first, uint64_t last) {
  std::string folder = std::filesystem::temp_directory_path() / "lockstep-shown-XXXXXX";
  EXPECT_TRUE(::mkdtemp(folder.data()));
  std::ofstream cells(cells_path(folder));
  for (const uint64_t number : numbers)
    cells << record_line(
        {{"n", number}, {"event", "input"}, {"cell", number}, {"text", fmt::format("cell {}", number)}});
  cells.close();
  const std::string text = journal_end(folder, "1-a", first, last, {}, 100);
  std::filesystem::remove_all(folder);
  return text;
}

TEST(ShownJournal, BeginsWithTheRecordThatIsAskedFor) {
  const std::string text = text_of_journal({1, 2, 3}, 2, 3);
  EXPECT_THAT(text, Not(HasSubstr("cell 1")));
  EXPECT_THAT(text, HasSubstr("cell 2"));
  EXPECT_THAT(text, HasSubstr("cell 3"));
  EXPECT_THAT(text, Not(HasSubstr("missing")));
}

TEST(ShownJournal, SaysWhatIsMissingFromThereOn) {
  EXPECT_THAT(text_of_journal({1, 5}, 3, 5), HasSubstr("2 records missing"));
  EXPECT_THAT(text_of_journal({1, 5, 7}, 5, 7), HasSubstr("1 record missing"));
  EXPECT_THAT(text_of_journal({1, 5}, 5, 5), Not(HasSubstr("missing")));
}

TEST(ShownJournal, SaysWhatIsMissingAtTheEnd) {
  EXPECT_THAT(text_of_journal({1, 2}, 2, 4), HasSubstr("2 records missing"));
  EXPECT_THAT(text_of_journal({1, 2}, 4, 4), HasSubstr("1 record missing"));
}

}  // namespace
}  // namespace lockstep::shell
