// Which tensors are equal to verify, which differ, and what it says of those that ranks do not have alike.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <limits>
#include <string>
#include <vector>

#include "inspectors/verify/verify.h"
#include "tests/inspectors/replicas.h"
#include "tests/inspectors/reports.h"
#include "tests/support/spawn_ranks.h"

namespace lockstep::inspect {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::spawn_ranks;

TEST(Verify, StridesAreNoDifference) {
  spawn_ranks(2, [](int rank, int) {
    const torch::Tensor base = torch::arange(12.0).reshape({3, 4});
    EXPECT_TRUE(verify(rank == 0 ? base.contiguous() : base.t().contiguous().t(), verify_options()).ok());
  });
}

TEST(Verify, SignsOfZeroAndPayloadsOfNanAreNotes) {
  spawn_ranks(2, [](int rank, int) {
    torch::Tensor tensor = torch::zeros({100});
    if (rank == 1) tensor[7] = -0.0F;
    tensor[9] = std::numeric_limits<float>::quiet_NaN();
    if (rank == 1) tensor.view(at::kInt)[9] = 0x7fc00001;
    const Report report = verify(tensor, verify_options());
    const Finding finding = only_finding(report);
    EXPECT_EQ(finding.severity, Severity::note);
    EXPECT_EQ(finding.verdict, Verdict::mismatch);
    EXPECT_EQ(finding.tensors[0].count, 2);
    EXPECT_THAT(finding.message, HasSubstr("signs of zeros"));
    EXPECT_TRUE(report.ok());
  });
}

TEST(Verify, NanAgainstANumberIsAFault) {
  spawn_ranks(2, [](int rank, int) {
    torch::Tensor tensor = torch::zeros({100});
    if (rank == 1) tensor[7] = std::numeric_limits<float>::quiet_NaN();
    const Report report = verify(tensor, verify_options());
    EXPECT_FALSE(report.ok());
    EXPECT_THAT(report.findings[0].tensors[0].first, ElementsAre(7));
  });
}

TEST(Verify, AllGatherAgreesAboveItsToleranceOnly) {
  spawn_ranks(2, [](int rank, int) {
    const torch::Tensor tensor = torch::full({10}, 1.0 + rank * 1e-6);
    EXPECT_FALSE(verify(tensor, verify_options()).ok());
    EXPECT_TRUE(verify(tensor, verify_options().method(Method::kAllGather)).ok());
    EXPECT_FALSE(verify(tensor, verify_options().method(Method::kAllGather).rtol(1e-8)).ok());
  });
}

TEST(Verify, MissingReshapedAndFrozenParametersAreToldAndTheRestIsStillCompared) {
  spawn_ranks(3, [](int rank, int) {
    torch::OrderedDict<std::string, torch::Tensor> state;
    state.insert("a", torch::full({4}, rank == 2 ? 1.5 : 1.0));
    if (rank != 1) state.insert("b", torch::ones({4}));
    state.insert("c", torch::ones({rank == 1 ? 3 : 4}));
    state.insert("d", torch::ones({4}, rank == 0 ? at::kDouble : at::kFloat));
    state.insert("e", torch::ones({4}).requires_grad_(rank != 1));
    const Report report = verify(state, verify_options());
    std::vector<std::string> seen;
    for (const Finding& each : report.findings)
      seen.push_back(std::string(to_string(each.verdict)) + " " + names(each).front());
    EXPECT_THAT(seen, ::testing::UnorderedElementsAre("missing b", "shape_mismatch c", "mismatch e", "dtype_mismatch d",
                                                      "mismatch a"))
        << report;
    for (const Finding& each : report.findings)
      if (each.verdict == Verdict::dtype_mismatch) EXPECT_EQ(each.ranks, RankSet{0});
  });
}

TEST(Verify, ATensorThatARankDoesNotHaveIsMissing) {
  spawn_ranks(3, [](int rank, int) {
    const torch::Tensor tensor = rank == 1 ? torch::Tensor() : torch::ones({2});
    const Report report = verify(tensor, verify_options());
    ASSERT_EQ(report.findings.size(), 1U) << report;
    EXPECT_EQ(report.findings[0].verdict, Verdict::missing);
    EXPECT_EQ(report.findings[0].ranks, RankSet{1});
    EXPECT_THAT(report.findings[0].message, HasSubstr("undefined on rank 1"));
  });
}

TEST(Verify, AnEmptyTensorIsOneAndASparseOneAnErrorThatSaysWhatToCompare) {
  spawn_ranks(2, [](int, int) {
    const Report report = verify(torch::empty({0, 4}), verify_options());
    EXPECT_THAT(report.findings.at(0).message, HasSubstr("1 tensor, 0 B"));
    try {
      verify(torch::eye(3).to_sparse(), verify_options());
      ADD_FAILURE() << "compared";
    } catch (const dist::ArgumentError& error) {
      EXPECT_THAT(error.what(), HasSubstr("compare values() and indices()"));
    }
  });
}

TEST(Verify, AnotherOrderOfParametersIsTold) {
  spawn_ranks(3, [](int rank, int) {
    torch::OrderedDict<std::string, torch::Tensor> state;
    for (const std::string& name : rank == 1 ? std::vector<std::string>{"b", "a"} : std::vector<std::string>{"a", "b"})
      state.insert(name, torch::ones({2}));
    const Finding finding = only_finding(verify(state, verify_options()));
    EXPECT_EQ(finding.verdict, Verdict::order_mismatch);
    EXPECT_EQ(finding.ranks, RankSet{1});
  });
}

}  // namespace
}  // namespace lockstep::inspect
