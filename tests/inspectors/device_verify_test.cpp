// verify and watch on the fake device: fingerprints are of the values that the current stream leaves, and a watched
// step does not wait for them.
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <chrono>

#include "collectives/session_group.h"
#include "inspectors/fingerprint/fingerprint.h"
#include "inspectors/verify/watch.h"
#include "lockstep/ddp.h"
#include "tests/inspectors/reports.h"
#include "tests/support/fake_device/fake_device.h"
#include "tests/support/spawn_ranks.h"

namespace lockstep::inspect {
namespace {

using namespace std::chrono_literals;
using fake::Schedule;
using ::testing::HasSubstr;

void on_two_late_devices(const testing::RankFunction& function, bool poison = true) {
  testing::spawn_processes(2, [&](int rank, int size) {
    fake::use_device_functions(true);
    c10::impl::VirtualGuardImpl(c10::DeviceType::PrivateUse1).setDevice(fake::device(rank));
    const fake::Scope scope({.schedule = Schedule::late, .poison = poison, .delays = {}});
    function(rank, size);
  });
}

VerifyOptions options() { return VerifyOptions().deadline(5min); }

TEST(VerifyOnDevices, FingerprintsAreThoseOfTheCpu) {
  fake::use_device_functions(true);
  const fake::Scope scope({.schedule = Schedule::late, .poison = true, .delays = {}});
  std::vector<torch::Tensor> on_cpu, on_device;
  for (const int64_t size : {0, 1, 1000, 100'000}) {
    on_cpu.push_back(torch::arange(size).to(torch::kFloat).sin());
    on_device.push_back(on_cpu.back().to(fake::device(0)) * 1);  // queued
  }
  on_device.push_back(torch::arange(12.0, fake::device(1)).reshape({3, 4}).t());
  on_cpu.push_back(torch::arange(12.0).reshape({3, 4}).t());
  const int64_t before = fake::fingerprints_queued();
  EXPECT_EQ(fingerprint(at::TensorList(on_device)), fingerprint(at::TensorList(on_cpu)));
  EXPECT_EQ(fake::fingerprints_queued(), before + 2);  // one for each device
  fake::use_device_functions(false);
}

TEST(VerifyOnDevices, QueuedFingerprintsAreOfTheValuesThatWereQueued) {
  fake::use_device_functions(true);
  for (const Schedule schedule : {Schedule::late, Schedule::eager}) {
    const fake::Scope scope({.schedule = schedule, .poison = true, .delays = {{"fingerprint", 10ms}}});
    auto value = torch::zeros({1000}, fake::device(0));
    value.add_(1);
    const int64_t waits = fake::host_waits();
    const QueuedFingerprints queued{at::TensorList(value)};
    value.add_(1);
    value = torch::Tensor();
    EXPECT_EQ(fake::host_waits(), waits);
    EXPECT_EQ(queued.read().front(), fingerprint(torch::ones({1000})));
  }
  fake::use_device_functions(false);
}

TEST(VerifyOnDevices, ComparesReplicasAndNamesTheDifference) {
  on_two_late_devices([](int rank, int) {
    auto value = torch::zeros({1000}, fake::device(rank));
    value.add_(1);
    EXPECT_TRUE(verify(value, options()).ok());
    if (rank == 1) value[7] += 1;
    const Report report = verify(value, options());
    EXPECT_FALSE(report.ok());
    EXPECT_EQ(only_finding(report).tensors.at(0).count, 1);
    EXPECT_EQ(only_finding(report).tensors.at(0).first, std::vector<int64_t>{7});
  });
}

struct Watched {
  explicit Watched(int rank) : weight(torch::ones({64}, fake::device(rank)).set_requires_grad(true)) {}
  /// The same update on every rank, on the current stream.
  void step() {
    const torch::NoGradGuard no_grad;
    weight.add_(0.5);
    count_step();
  }
  torch::Tensor weight;
};

TEST(VerifyOnDevices, AWatchedStepDoesNotWaitForItsOwnFingerprints) {
  const auto train = [](int rank, int) {
    Watched training(rank);
    const PublishedFindings published;
    const auto watching = watch(training.weight, 1, options());
    training.step();
    const int64_t waits = fake::host_waits();
    const int64_t queued = fake::fingerprints_queued();
    for (int i = 0; i < 4; ++i) {
      training.step();
      EXPECT_FALSE(fake::current_stream(rank).query()) << "the host has waited for all that is queued";
    }
    EXPECT_EQ(fake::fingerprints_queued(), queued + 4);
    EXPECT_EQ(fake::host_waits(), waits + 4);  // each for the fingerprints of the step before
    EXPECT_EQ(watching.cost().checks, 5);
    EXPECT_TRUE(published.all().empty());
  };
  on_two_late_devices(train, /*poison=*/false);
}

TEST(VerifyOnDevices, AWatchByAllReduceIsACallOfTheProgramsGroup) {
  const auto train = [](int rank, int) {
    Watched training(rank);
    const PublishedFindings published;
    const auto watching = watch(training.weight, 1, options().method(Method::kAllReduce));
    const int64_t before = dist::progress().at("default");
    for (int i = 0; i < 4; ++i) training.step();
    EXPECT_EQ(dist::progress().at("default"), before + 4);
    EXPECT_EQ(watching.cost().checks, 4);
    EXPECT_TRUE(published.all().empty());
  };
  on_two_late_devices(train, /*poison=*/false);
}

class WatchOnDevices : public ::testing::TestWithParam<Method> {};
INSTANTIATE_TEST_SUITE_P(By, WatchOnDevices, ::testing::Values(Method::kFingerprint, Method::kAllReduce),
                         [](const auto& info) {
                           return info.param == Method::kAllReduce ? std::string("all_reduce")
                                                                   : std::string("fingerprint");
                         });

TEST_P(WatchOnDevices, NamesTheStepInWhichReplicasParted) {
  on_two_late_devices([method = GetParam()](int rank, int) {
    Watched training(rank);
    const PublishedFindings published;
    const auto watching = watch(training.weight, 1, options().method(method));
    for (int i = 1; i <= 5; ++i) {
      if (i == 3 && rank == 1) {
        const torch::NoGradGuard no_grad;
        training.weight[3] += 1;
      }
      training.step();
    }
    ASSERT_EQ(published.all().size(), rank == 0 ? 1U : 0U);
    if (rank == 1) return;
    EXPECT_EQ(published.all()[0].step, 3);
    EXPECT_THAT(published.all()[0].message, HasSubstr("equal at step 2, not at step 3"));
    EXPECT_EQ(published.all()[0].tensors.at(0).first, std::vector<int64_t>{3});
  });
}

TEST_P(WatchOnDevices, ADifferenceThatHasPassedIsNamed) {
  on_two_late_devices([method = GetParam()](int rank, int) {
    Watched training(rank);
    const PublishedFindings published;
    const auto watching = watch(training.weight, 1, options().method(method));
    const auto spoil = [&](double by) {
      if (rank != 1) return;
      const torch::NoGradGuard no_grad;
      training.weight[3] += by;
    };
    training.step();
    spoil(1);
    training.step();
    spoil(-1);
    training.step();
    ASSERT_EQ(published.all().size(), rank == 0 ? 1U : 0U);
    if (rank == 0) EXPECT_THAT(published.all()[0].message, HasSubstr("for a step, and is equal again"));
  });
}

}  // namespace
}  // namespace lockstep::inspect
