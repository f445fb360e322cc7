// Who calls verify: some ranks, one alone, processes, replicas in one process; and who publishes.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <vector>

#include "inspectors/verify/verify.h"
#include "tests/inspectors/replicas.h"
#include "tests/inspectors/reports.h"
#include "tests/support/spawn_ranks.h"

namespace lockstep::inspect {
namespace {

using ::testing::HasSubstr;
using testing::spawn_ranks;

TEST(Verify, DifferentObjectsEndInAFindingAndTheNextCallIsRight) {
  spawn_ranks(2, [](int rank, int) {
    const auto net = equal_net();
    const Finding finding = only_finding(rank == 0 ? verify(net, "net") : verify(torch::ones({3}), "t"));
    EXPECT_EQ(finding.severity, Severity::fault);
    EXPECT_THAT(finding.message, HasSubstr("rank 1 for `t`, a tensor"));
    EXPECT_TRUE(verify(net, verify_options()).ok());
  });
}

TEST(Verify, RanksThatDoNotCallAreNamedAndTheNextCallOfAllIsRight) {
  spawn_ranks(3, [](int rank, int) {
    const torch::Tensor tensor = torch::ones({3});
    if (rank != 1) {
      const Finding finding = only_finding(verify(tensor, verify_options().deadline(std::chrono::seconds(2))));
      EXPECT_EQ(finding.verdict, Verdict::missing);
      EXPECT_EQ(finding.ranks, RankSet{1});
      EXPECT_EQ(finding.reference_ranks, (RankSet{0, 2}));
    }
    dist::barrier();
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(verify(tensor, verify_options()).ok());
    EXPECT_EQ(verify(torch::full({3}, rank), verify_options()).findings[0].verdict, Verdict::mismatch);
  });
}

TEST(Verify, ARankAloneAndRanksChosen) {
  EXPECT_TRUE(verify(torch::ones({3})).ok());
  spawn_ranks(3, [](int rank, int) {
    const torch::Tensor tensor = torch::full({3}, rank == 2 ? 1.0 : 0.0);
    EXPECT_TRUE(verify(tensor, verify_options().ranks(RankSet{0, 1})).ok());
    EXPECT_THROW(verify(tensor, verify_options().ranks(RankSet{0, 7})), dist::ArgumentError);
  });
}

TEST(Verify, TheLowestRankThatCameTellsTheSession) {
  const PublishedFindings published;
  spawn_ranks(3, [](int rank, int) {
    verify(torch::full({2}, rank == 1), verify_options());
    if (rank != 0) verify(torch::ones({2}), verify_options().deadline(std::chrono::seconds(2)));
  });
  ASSERT_EQ(published.all().size(), 2U);
  EXPECT_EQ(published.all()[0].ranks, RankSet{1});
  EXPECT_EQ(published.all()[1].verdict, Verdict::missing);
  EXPECT_EQ(published.all()[1].ranks, RankSet{0});
}

TEST(Verify, ReplicasInOneProcess) {
  std::vector<Subject> subjects;
  for (int rank = 0; rank < 3; ++rank) subjects.push_back(subject_of(torch::full({5}, rank == 1 ? 1.0 : 0.0), "t"));
  const Report report = verify_here(subjects, RankSet::all(3), VerifyOptions());
  EXPECT_EQ(report.findings[0].ranks, RankSet{1});
  EXPECT_EQ(report.findings[0].tensors[0].count, 5);
  subjects[1] = subject_of(torch::zeros({5}), "t");
  EXPECT_TRUE(verify_here(subjects, RankSet::all(3), VerifyOptions()).ok());
}

TEST(Verify, OverProcessesAndAStoreOfSockets) {
  const auto outcomes = testing::run_as_processes(2, [](int rank, int) {
    const torch::Tensor tensor = torch::ones({100000});
    if (rank == 1) {
      EXPECT_EQ(verify(tensor, verify_options().deadline(std::chrono::milliseconds(300))).findings[0].verdict,
                Verdict::missing);
    }
    dist::barrier();
    EXPECT_TRUE(verify(tensor, verify_options()).ok());
    EXPECT_EQ(verify(tensor + rank, verify_options()).findings[0].tensors[0].count, 100000);
    torch::manual_seed(static_cast<uint64_t>(rank));
    EXPECT_EQ(verify(rng(), verify_options()).findings[0].verdict, Verdict::diverged_seed);
  });
  for (const auto& outcome : outcomes) EXPECT_TRUE(outcome.ok()) << outcome;
}

}  // namespace
}  // namespace lockstep::inspect
