// Hangs that are found in the collective logs of ranks alone.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

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
