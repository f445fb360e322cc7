// Hangs that are found in the collective logs of ranks alone.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <limits>
#include <memory>

#include "collectives/log/collective_log.h"
#include "inspectors/hang/hang.h"
#include "protocol/dist_error.h"

namespace lockstep::inspect {
namespace {

class Logs : public ::testing::Test {
 protected:
  Logs() {
    std::string pattern = std::filesystem::temp_directory_path() / "lockstep-hang-XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
  }
  ~Logs() override { std::filesystem::remove_all(folder_); }

  std::string path(int rank) const { return folder_ + "/" + std::to_string(rank); }

  std::string folder_;
};

uint64_t enter(dist::CollectiveLog& log, uint32_t group, int64_t seq,
               dist::CollectiveOp op = dist::CollectiveOp::barrier) {
  const uint64_t entry = log.begin(group, seq, {.op = op});
  log.mapping().group(group).last_entered = seq;
  return entry;
}

TEST_F(Logs, AreEnoughToSeeGroupsCrossed) {
  dist::CollectiveLog zero(path(0), 0, 2), one(path(1), 1, 2);
  uint32_t first[2], second[2];
  for (auto* log : {&zero, &one}) {
    const int rank = log == &zero ? 0 : 1;
    first[rank] = log->add_group("default", {0, 1}, rank, 0);
    second[rank] = log->add_group("group_1", {0, 1}, rank, 0);
  }
  EXPECT_EQ(hang({path(0), path(1)}, 0).at(0).verdict, Verdict::ok);
  enter(zero, first[0], 1);
  EXPECT_EQ(hang({path(0), path(1)}, 0).at(0).verdict, Verdict::ok);
  enter(one, second[1], 1);
  const auto findings = hang({path(1), path(0)}, 0);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].verdict, Verdict::hang);
  EXPECT_EQ(findings[0].ranks, (RankSet{0, 1}));
  EXPECT_EQ(hang({path(0), path(1)}, 1000).at(0).verdict, Verdict::ok) << "too fresh to say";
}

/// Logs of ranks of which all but `absent` wait in the first barrier of the group `ranks`.
std::vector<std::unique_ptr<dist::CollectiveLog>> all_wait_but(int absent, const std::vector<int>& ranks,
                                                               const std::string& folder) {
  std::vector<std::unique_ptr<dist::CollectiveLog>> logs;
  for (size_t i = 0; i < ranks.size(); ++i) {
    const int rank = ranks[i];
    logs.push_back(std::make_unique<dist::CollectiveLog>(folder + "/" + std::to_string(rank), rank, 512));
    const uint32_t group = logs.back()->add_group("default", ranks, static_cast<int>(i), 0);
    if (rank != absent) enter(*logs.back(), group, 1);
  }
  return logs;
}

std::vector<std::string> paths_of(const std::vector<int>& ranks, const std::string& folder) {
  std::vector<std::string> paths;
  for (const int rank : ranks) paths.push_back(folder + "/" + std::to_string(rank));
  return paths;
}

TEST_F(Logs, OfALargeGroupNameTheRankThatDoesNotCome) {
  std::vector<int> ranks;
  for (int i = 0; i < 128; ++i) ranks.push_back(3 + 2 * i);
  const auto logs = all_wait_but(3 + 2 * 70, ranks, folder_);
  const auto groups = dist::CollectiveLogReader(logs[0]->mapping()).groups();
  EXPECT_EQ(groups.at(0).ranks, ranks);
  EXPECT_EQ(groups.at(0).unnamed, 0);
  logs[70]->mapping().header().process_start += 1;  // it is gone
  const auto findings = hang(paths_of(ranks, folder_), 0);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].verdict, Verdict::dead);
  EXPECT_EQ(findings[0].ranks, RankSet{3 + 2 * 70});
}

TEST_F(Logs, OfALargeIrregularGroupNameNobodyByMistake) {
  std::vector<int> ranks;
  for (int i = 0; i < 100; ++i) ranks.push_back(i * i / 20 + i);
  auto logs = all_wait_but(ranks[70], ranks, folder_);
  const auto group = dist::CollectiveLogReader(logs[0]->mapping()).groups().at(0);
  EXPECT_EQ(group.ranks, std::vector<int>(ranks.begin(), ranks.begin() + 64));
  EXPECT_EQ(group.unnamed, 36);
  logs[70]->mapping().header().process_start += 1;
  const auto findings = hang(paths_of(ranks, folder_), 0);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].verdict, Verdict::ok) << findings[0].message;
  logs[70]->mapping().header().process_start -= 1;
  logs[30]->mapping().header().process_start += 1;  // it has come, and went then: nothing waits for it
  EXPECT_EQ(hang(paths_of(ranks, folder_), 0).at(0).verdict, Verdict::ok);
  logs[30]->mapping().group(0).last_entered = 0;  // as if it had not
  EXPECT_EQ(hang(paths_of(ranks, folder_), 0).at(0).ranks, RankSet{ranks[30]});
}

TEST_F(Logs, OfALargeGroupCountMessagesWithItsFirstRanksOnly) {
  std::vector<int> ranks;
  for (int i = 0; i < 100; ++i) ranks.push_back(i);
  dist::CollectiveLog zero(path(0), 0, 100), far(path(80), 80, 100);
  const uint32_t there = zero.add_group("default", ranks, 0, 0), here = far.add_group("default", ranks, 80, 0);
  // Rank 0 has sent to rank 80, which it does not count, and ended. Whether that came is not known.
  far.begin(here, 1, {.op = dist::CollectiveOp::recv, .flags = dist::log_layout::kPointToPoint, .root = 0, .bytes = 4});
  zero.mapping().header().process_start += 1;
  EXPECT_EQ(hang({path(0), path(80)}, 0).at(0).verdict, Verdict::ok);
  const auto groups = dist::CollectiveLogReader(zero.mapping()).groups();
  EXPECT_TRUE(groups.at(there).counts_messages_with(63));
  EXPECT_FALSE(groups.at(there).counts_messages_with(64));
}

TEST_F(Logs, OfADamagedGroupNameNoMoreThanTheirLimits) {
  dist::CollectiveLog zero(path(0), 0, 2);
  zero.add_group("default", {0, 1}, 0, 0);
  auto& group = zero.mapping().group(0);
  const auto named = [&] { return dist::CollectiveLogReader(zero.mapping()).groups().at(0); };
  group.size = std::numeric_limits<int32_t>::max();
  EXPECT_EQ(std::ssize(named().ranks), dist::log_layout::kLargestGroup);
  EXPECT_GT(named().unnamed, 0);
  group.step = 0;
  EXPECT_EQ(std::ssize(named().ranks), dist::log_layout::kRanksPerGroup);
  group.size = -1;
  EXPECT_TRUE(named().ranks.empty());
  EXPECT_EQ(named().unnamed, 0);
}

TEST_F(Logs, OfAProcessThatIsGone) {
  dist::CollectiveLog zero(path(0), 0, 2), one(path(1), 1, 2);
  for (auto* log : {&zero, &one}) log->add_group("default", {0, 1}, log == &zero ? 0 : 1, 0);
  enter(zero, 0, 1);
  one.mapping().header().process_start += 1;  // a later process with its pid
  const auto findings = hang({path(0), path(1)}, 0);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].verdict, Verdict::dead);
  EXPECT_EQ(findings[0].ranks, RankSet{1});
}

TEST_F(Logs, MustBeLogs) { EXPECT_THROW(hang({path(3)}), dist::Error); }

}  // namespace
}  // namespace lockstep::inspect
