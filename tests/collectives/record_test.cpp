// The files of a recorded rank: which steps they keep, and that nothing that happens to them is more than a message.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "collectives/record/rank_files.h"
#include "collectives/record/recording.h"
#include "protocol/checksum.h"
#include "protocol/dist_error.h"
#include "protocol/files.h"

namespace lockstep::dist {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class RecordedRank : public testing::Test {
 protected:
  RecordedRank() {
    std::string name = fs::temp_directory_path() / "record-XXXXXX";
    folder_ = ::mkdtemp(name.data());
  }
  ~RecordedRank() override { fs::remove_all(folder_); }

  /// Writes what a rank with `steps` kept steps has after steps 0 to `count` - 1, each with one call.
  void record(int rank, int64_t steps, int64_t count) {
    RankFiles files(folder_, rank);
    ASSERT_EQ(files.append(0, RecordKind::about, {{"rank", rank}}), 0);
    for (int64_t step = 0; step < count; ++step) {
      if (begins_segment(step, steps)) {
        files.begin_segment();
        ASSERT_EQ(files.append(files.segment(), RecordKind::state, {{"step", step}}, {std::string(64, 's')}), 0);
      }
      ASSERT_EQ(files.append(files.segment(), RecordKind::step, {{"step", step}}), 0);
      const std::string first = "first of " + std::to_string(step), second(static_cast<size_t>(step) * 3, 'x');
      ASSERT_EQ(files.append(files.segment(), RecordKind::result, {{"number", step}}, {first, second}), 0);
    }
  }
  std::vector<int64_t> steps_left(int rank) const {
    std::vector<int64_t> steps;
    for (const LeftRecord& each : read_rank_files(folder_, rank).records)
      if (each.record.kind == RecordKind::step) steps.push_back(each.record.text.at("step"));
    return steps;
  }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  static void overwrite(const std::string& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  }

  std::string folder_;
};

using Steps = std::vector<int64_t>;

TEST_F(RecordedRank, KeepsTheFirstTwoStepsAndAtLeastSoManyOfTheLast) {
  const std::map<int64_t, Steps> expected = {{0, {}},
                                             {1, {0}},
                                             {2, {0, 1}},
                                             {4, {0, 1, 2, 3}},
                                             {8, {0, 1, 2, 3, 4, 5, 6, 7}},
                                             {9, {0, 1, 5, 6, 7, 8}},
                                             {12, {0, 1, 8, 9, 10, 11}},
                                             {14, {0, 1, 8, 9, 10, 11, 12, 13}}};
  for (const auto& [count, steps] : expected) {
    record(0, 3, count);
    EXPECT_EQ(steps_left(0), steps) << count;
  }
}

TEST_F(RecordedRank, ASegmentThatIsGoneTakesNoMore) {
  RankFiles files(folder_, 0);
  ASSERT_EQ(files.append(0, RecordKind::about, {{"rank", 0}}), 0);
  for (int segment = 1; segment <= 3; ++segment) {
    files.begin_segment();
    ASSERT_EQ(files.append(files.segment(), RecordKind::state, {{"step", segment}}), 0);
  }
  const auto size = [&] {
    uintmax_t all = 0;
    for (const auto& each : fs::directory_iterator(folder_)) all += each.file_size();
    return all;
  };
  const uintmax_t before = size();
  EXPECT_EQ(files.append(1, RecordKind::result, {{"number", 7}}), 0);
  EXPECT_EQ(size(), before);
}

TEST_F(RecordedRank, ALaterProcessOfTheRankBeginsAnew) {
  record(0, 2, 9);
  record(0, 2, 1);
  EXPECT_EQ(steps_left(0), Steps{0});
}

TEST_F(RecordedRank, ARecordThatWasCutOffIsNone) {
  record(0, 3, 4);
  const std::string last = record_file(folder_, 0, 2);
  const std::string whole = *protocol::read_file(last);
  const size_t all = read_rank_files(folder_, 0).records.size();
  for (size_t size = 0; size + 8 < whole.size(); ++size) {  // the last bytes may be padding
    overwrite(last, whole.substr(0, size));
    EXPECT_LT(read_rank_files(folder_, 0).records.size(), all) << size;
    const Steps steps = steps_left(0);
    ASSERT_GE(steps.size(), 2U) << size;
    EXPECT_EQ((Steps{steps[0], steps[1]}), (Steps{0, 1})) << size;
  }
}

/// The bytes of a record as they are in a file that somebody has made, with a checksum that fits.
std::string made_up_record(uint32_t magic, RecordKind kind, const std::string& text) {
  RecordHeader header{.magic = magic, .kind = kind, .text_bytes = text.size()};
  const auto bytes = [&] { return std::string(reinterpret_cast<const char*>(&header), sizeof header) + text; };
  header.sum = protocol::checksum(bytes());
  return bytes() + std::string((8 - text.size() % 8) % 8, '\0');
}

// Whoever copies such a value would overflow its stack.
TEST_F(RecordedRank, ATextThatIsNestedTooDeeplyIsNoRecord) {
  record(0, 3, 1);
  write_recording(folder_, 1, path("whole"));
  const std::string whole = *protocol::read_file(path("whole"));
  uint32_t magic = 0;
  std::memcpy(&magic, whole.data(), sizeof magic);
  const auto records_with = [&](size_t depth) {
    const std::string brackets = std::string(depth, '[') + std::string(depth, ']');
    overwrite(path("made up"), made_up_record(magic, RecordKind::call, R"({"op":)" + brackets + "}"));
    const Descriptor file(::open(path("made up").c_str(), O_RDONLY | O_CLOEXEC));
    return RecordReader(file.get()).next().has_value() ? 1 : 0;
  };
  EXPECT_EQ(records_with(100), 1);
  EXPECT_EQ(records_with(100'000), 0);
}

TEST_F(RecordedRank, ARecordingHasWhatRanksHaveLeft) {
  record(0, 3, 4);
  record(2, 3, 9);
  const WrittenRecording written = write_recording(folder_, 3, path("whole"));
  EXPECT_EQ(written.ranks, (RankSet{0, 2}));
  EXPECT_EQ(written.bytes, fs::file_size(path("whole")));
  const Recording recording(path("whole"));
  EXPECT_EQ(recording.ranks(), (RankSet{0, 2}));
  recording.check(0);
  recording.check(2);
  const Record& last = recording.records(2).back();
  EXPECT_EQ(last.text.at("number"), 8);
  EXPECT_EQ(recording.payload(last), "first of 8" + std::string(24, 'x'));
}

// A rank that has begun a segment anew no longer has its shares of what the others have received in it.
TEST_F(RecordedRank, ASegmentThatARankHasBegunAnewIsLeftOutOfTheOthers) {
  record(0, 3, 9);
  record(1, 3, 8);
  write_recording(folder_, 2, path("whole"));
  const Recording recording(path("whole"));
  const auto steps = [&](int rank) {
    Steps steps;
    for (const Record& each : recording.records(rank))
      if (each.kind == RecordKind::step) steps.push_back(each.text.at("step"));
    return steps;
  };
  EXPECT_EQ(steps_left(1), (Steps{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(steps(0), (Steps{0, 1, 5, 6, 7, 8}));
  EXPECT_EQ(steps(1), (Steps{0, 1, 5, 6, 7}));
}

TEST_F(RecordedRank, NoRecordingWhereNoRankHasLeftAnything) {
  EXPECT_TRUE(write_recording(folder_, 3, path("none")).ranks.empty());
  EXPECT_FALSE(fs::exists(path("none")));
}

TEST_F(RecordedRank, ARecordingThatIsCutOffIsRefused) {
  record(0, 3, 4);
  write_recording(folder_, 1, path("whole"));
  const std::string whole = *protocol::read_file(path("whole"));
  for (size_t size = 0; size + 8 < whole.size(); size += 3) {  // the last bytes may be padding
    overwrite(path("part"), whole.substr(0, size));
    EXPECT_THROW(Recording(path("part")).check(0), Error) << size;
  }
}

TEST_F(RecordedRank, AByteThatIsFlippedIsFound) {
  record(0, 3, 4);
  write_recording(folder_, 1, path("whole"));
  const std::string whole = *protocol::read_file(path("whole"));
  size_t unseen = 0;
  for (size_t at = 0; at < whole.size(); at += 3) {
    std::string changed = whole;
    changed[at] = static_cast<char>(changed[at] ^ 0x10);
    overwrite(path("changed"), changed);
    try {
      const Recording recording(path("changed"));
      recording.check(0);
      ++unseen;  // between two records there are up to seven bytes that nobody reads
      EXPECT_EQ(whole[at], '\0');
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(path("changed")), std::string::npos);
    }
  }
  EXPECT_LT(unseen, whole.size() / 24);
}

TEST_F(RecordedRank, WhatIsNotThereIsNamed) {
  record(1, 3, 1);
  write_recording(folder_, 2, path("whole"));
  const auto message = [](const auto& what) -> std::string {
    try {
      what();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message([&] { Recording(path("whole")).check(0); }),
            "the recording " + path("whole") + " has no rank 0; it has rank 1");
  EXPECT_NE(message([&] { Recording(path("absent")); }).find("can't be opened: No such file"), std::string::npos);
  overwrite(path("text"), "not a recording");
  EXPECT_NE(message([&] { Recording(path("text")); }).find("is no recording"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::dist
