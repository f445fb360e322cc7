// verify on random number generators: equal seeds, seeds by rank, and others.
#include <ATen/CPUGeneratorImpl.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include "collectives/dist.h"
#include "inspectors/verify/verify.h"
#include "tests/inspectors/replicas.h"
#include "tests/inspectors/reports.h"
#include "tests/support/spawn_ranks.h"

namespace lockstep::inspect {
namespace {

using ::testing::HasSubstr;
using testing::spawn_ranks;

TEST(Verify, Generators) {
  spawn_ranks(2, [](int rank, int) {
    EXPECT_TRUE(verify(at::make_generator<at::CPUGeneratorImpl>(5), verify_options()).ok());
    const Report report = verify(at::make_generator<at::CPUGeneratorImpl>(rank), verify_options());
    EXPECT_EQ(report.findings[0].verdict, Verdict::diverged_seed);
    EXPECT_TRUE(verify(rng(), verify_options()).ok());  // threads share theirs
  });
}

TEST(Verify, DropoutThatDrawsTheSameOnSeveralRanksIsANote) {
  spawn_ranks(2, [](int, int) {
    torch::nn::Sequential net(torch::nn::Linear(4, 4), torch::nn::Dropout(0.1));
    for (torch::Tensor& each : net->parameters()) change(each, [](torch::Tensor& values) { values.fill_(1); });
    dist::barrier();  // threads share their generator, and each has initialised a layer
    const Report report = verify(net, verify_options());
    ASSERT_EQ(report.findings.size(), 2U) << report;
    EXPECT_EQ(report.findings[0].verdict, Verdict::ok);
    EXPECT_EQ(report.findings[1].verdict, Verdict::duplicate_data);
    EXPECT_EQ(report.findings[1].severity, Severity::note);
    EXPECT_THAT(report.findings[1].message, HasSubstr("the same state on ranks 0-1: they draw the same masks"));
    net->eval();
    EXPECT_EQ(only_finding(verify(net, verify_options())).verdict, Verdict::ok);
  });
}

TEST(Verify, GeneratorsThatEachRankSeedsByItsNumberAreANote) {
  spawn_ranks(4, [](int rank, int) {
    const auto seeded = [&](uint64_t seed, int draws = 0) {
      const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
      for (int i = 0; i < draws; ++i) torch::rand({1}, generator);
      return only_finding(verify(generator, verify_options()));
    };
    const auto number = static_cast<uint64_t>(rank);
    const Finding by_number = seeded(100 + number, rank);
    EXPECT_EQ(by_number.verdict, Verdict::diverged_seed);
    EXPECT_EQ(by_number.severity, Severity::note);
    EXPECT_THAT(by_number.message,
                HasSubstr("each rank is seeded by its number (100 + rank), and draws its own random numbers"));
    EXPECT_THAT(seeded(7 + 1000 * number).message, HasSubstr("(7 + 1000 * rank)"));
    EXPECT_THAT(seeded(10 - number).message, HasSubstr("(10 + -1 * rank)"));
    // One that has drawn more, one that was seeded otherwise, and seeds that nobody has chosen.
    EXPECT_EQ(seeded(5, rank == 2).severity, Severity::fault);
    EXPECT_EQ(seeded(rank == 2 ? 7 : 100 + number).severity, Severity::fault);
    EXPECT_EQ(seeded(number << 40).severity, Severity::fault);
  });
}

}  // namespace
}  // namespace lockstep::inspect
