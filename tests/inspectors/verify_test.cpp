// verify on ranks that are threads: equal replicas are ok by every method, and a difference has its rank, tensor,
// element and distance.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include "inspectors/fingerprint/fingerprint.h"
#include "inspectors/verify/verify.h"
#include "lockstep/ddp.h"
#include "tests/inspectors/replicas.h"
#include "tests/inspectors/reports.h"
#include "tests/support/spawn_ranks.h"

namespace lockstep::inspect {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::spawn_ranks;
using ::testing::StartsWith;

TEST(Verify, EqualReplicasAreOkByEveryMethod) {
  spawn_ranks(3, [](int, int) {
    const auto net = equal_net();
    for (const Method method : {Method::kFingerprint, Method::kBroadcast, Method::kAllGather, Method::kAllReduce}) {
      const Report report = verify(net, verify_options().method(method));
      const Finding finding = only_finding(report);
      EXPECT_EQ(finding.verdict, Verdict::ok);
      EXPECT_EQ(finding.severity, Severity::note);
      EXPECT_EQ(finding.ranks, RankSet::all(3));
      EXPECT_EQ(report.tensors, 9);
      EXPECT_TRUE(report.ok());
    }
  });
}

TEST(Verify, NamesRankTensorElementsPlaceAndDistance) {
  spawn_ranks(4, [](int rank, int) {
    const auto net = equal_net();
    if (rank == 2)
      change(net->second->weight, [](torch::Tensor& weight) {
        weight[3][4] += 0.25;
        weight[5][0] -= 0.125;
        weight[7][15] += 0.0625;
      });
    for (const Method method : {Method::kFingerprint, Method::kBroadcast, Method::kAllGather, Method::kAllReduce}) {
      const Finding finding = only_finding(verify(net, verify_options().method(method)));
      EXPECT_EQ(finding.severity, Severity::fault);
      EXPECT_EQ(finding.inspector, "verify");
      EXPECT_EQ(finding.verdict, Verdict::mismatch);
      EXPECT_EQ(finding.object, "net");
      EXPECT_EQ(finding.kind, FindingKind::parameter);
      EXPECT_EQ(finding.ranks, RankSet{2});
      EXPECT_EQ(finding.reference_ranks, (RankSet{0, 1, 3}));
      ASSERT_EQ(finding.tensors.size(), 1U);
      EXPECT_EQ(finding.tensors[0].name, "second.weight");
      EXPECT_EQ(finding.tensors[0].dtype, "float32");
      EXPECT_THAT(finding.tensors[0].shape, ElementsAre(8, 16));
      EXPECT_EQ(finding.tensors[0].count, 3);
      EXPECT_THAT(finding.tensors[0].first, ElementsAre(3, 4));
      EXPECT_NEAR(*finding.tensors[0].max_abs_diff, 0.25, 1e-6);
      EXPECT_THAT(finding.message, HasSubstr("rank 2 differs from ranks 0-1,3 in 1 of 6 parameters"));
      EXPECT_THAT(finding.message, HasSubstr("; at most 0.25 apart, norm "));
    }
  });
}

TEST(Verify, AnAllReduceIsOfAllRanksAndSeesOrderAndValues) {
  spawn_ranks(3, [](int rank, int) {
    const auto by_all_reduce = verify_options().method(Method::kAllReduce);
    std::vector<torch::Tensor> tensors = {torch::ones({4}), torch::zeros({4})};
    EXPECT_TRUE(verify(tensors, by_all_reduce).ok());
    if (rank == 1) std::swap(tensors[0], tensors[1]);
    EXPECT_EQ(only_finding(verify(tensors, by_all_reduce)).ranks, RankSet{1});
    EXPECT_TRUE(verify(7, by_all_reduce).ok());
    EXPECT_FALSE(verify(rank == 2 ? 8 : 7, by_all_reduce).ok());
    if (rank == 2) tensors.pop_back();
    EXPECT_FALSE(verify(tensors, by_all_reduce).ok());
    EXPECT_THROW(verify(tensors, VerifyOptions(by_all_reduce).ranks(RankSet{0, 1})), dist::ArgumentError);
  });
}

TEST(Verify, OfTwoRanksNeitherIsRight) {
  spawn_ranks(2, [](int rank, int) {
    const torch::Tensor tensor = torch::full({10}, 1.0 + rank);
    const Finding finding = only_finding(verify(tensor, verify_options()));
    EXPECT_EQ(finding.ranks, RankSet::all(2));
    EXPECT_TRUE(finding.reference_ranks.empty());
    EXPECT_EQ(finding.tensors[0].count, 10);
    EXPECT_EQ(finding.tensors[0].max_abs_diff, 1.0);
    EXPECT_THAT(finding.message, StartsWith("ranks 0-1 differ; at most 1 apart, "));
    const Report near = verify(torch::full({10}, 1.0 + rank * 0x1p-22), verify_options());
    EXPECT_THAT(near.findings[0].message, HasSubstr("; at most 2.4e-07 apart (2 ULP), norm "));
  });
}

TEST(Verify, ADifferenceLateInALargeTensorHasItsPlace) {
  spawn_ranks(2, [](int rank, int) {
    torch::Tensor tensor = torch::zeros({300, 1000});
    if (rank == 1) tensor[299][998] = 2.0;
    const Finding finding = only_finding(verify(tensor.t(), verify_options()));
    EXPECT_THAT(finding.tensors[0].first, ElementsAre(998, 299));
    EXPECT_EQ(finding.tensors[0].count, 1);
  });
}

TEST(Verify, BeyondTheDetailBudgetOnlyThatItDiffersIsSaid) {
  spawn_ranks(2, [](int rank, int) {
    const torch::Tensor tensor = torch::full({100000}, 1.0 + rank);
    const Report report = verify(tensor, verify_options().detail_bytes(kChunkBytes));
    EXPECT_EQ(report.findings[0].tensors[0].count, std::nullopt);
    EXPECT_THAT(report.findings[0].tensors[0].first, ElementsAre(0));
  });
}

// Rule 9: looking does not touch.
TEST(Verify, LeavesTrainingBitIdenticalAndTheUsersGroupAlone) {
  spawn_ranks(2, [](int rank, int) {
    const auto train = [&](bool look) {
      const auto net = equal_net();
      ddp::DistributedDataParallel wrapped(net, ddp::Options());
      torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.01).momentum(0.9));
      for (int step = 0; step < 4; ++step) {
        sgd.zero_grad();
        wrapped(torch::arange(32.0).reshape({4, 8}) * (rank + 1) * 0.01).pow(2).mean().backward();
        sgd.step();
        const auto before = dist::default_group()->getSequenceNumberForGroup();
        if (look) {
          EXPECT_TRUE(verify(net->parameters(), verify_options()).ok());
          EXPECT_TRUE(verify(sgd, verify_options()).ok());
        }
        EXPECT_EQ(dist::default_group()->getSequenceNumberForGroup(), before);
      }
      return fingerprint(net->parameters());
    };
    EXPECT_EQ(train(false), train(true));
  });
}

}  // namespace
}  // namespace lockstep::inspect
