// time_sync, buckets and timeline on the fake device: times are those of the device's streams, and no measured window
// waits for the device. The delays that the device injects are lower bounds; no other time is compared with a number.
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "inspectors/timing/buckets.h"
#include "inspectors/timing/time_sync.h"
#include "inspectors/timing/timeline.h"
#include "lockstep/ddp.h"
#include "tests/ddp/models.h"
#include "tests/support/fake_device/fake_device.h"
#include "tests/support/spawn_ranks.h"

namespace lockstep::inspect {
namespace {

using namespace std::chrono_literals;
using fake::Schedule;
using ::testing::HasSubstr;

void on_two_devices(const testing::RankFunction& function) {
  testing::spawn_processes(
      2,
      [&](int rank, int size) {
        c10::impl::VirtualGuardImpl(c10::DeviceType::PrivateUse1).setDevice(fake::device(rank));
        function(rank, size);
      },
      testing::RankOptions{.backend = "gloo_fake"});
}

struct DeviceTraining {
  explicit DeviceTraining(int rank)
      : net(on_device(rank), ddp::Options().bucket_cap_mb(0.0005)),
        optimizer(net.parameters(), torch::optim::SGDOptions(0.01)),
        input(torch::ones({4, 8}, fake::device(rank))) {}
  static test::Mlp on_device(int rank) {
    test::Mlp module;
    const torch::NoGradGuard no_grad;
    for (auto& each : module->parameters())
      each.copy_(torch::arange(each.numel()).reshape(each.sizes()).mul(0.013).sin());
    fake::move_to(*module, fake::device(rank));
    return module;
  }
  void step() {
    optimizer.zero_grad();
    net(input).square().mean().backward();
    optimizer.step();
  }
  ddp::DistributedDataParallel<test::MlpImpl> net;
  torch::optim::SGD optimizer;
  torch::Tensor input;
};

TEST(TimingOnDevices, TimeSyncMeasuresTheDeviceAndDoesNotWaitInTheWindow) {
  on_two_devices([](int rank, int) {
    DeviceTraining training(rank);
    // Only the forward's and the optimizer's operators are slow. The host has queued all within a fraction of that.
    const fake::Scope scope({.schedule = Schedule::eager,
                             .poison = false,
                             .delays = {{"addmm.out", 10ms}, {"threshold_backward.grad_input", 20ms}, {"zero_", 0ms}}});
    int64_t waits_unsynchronised = 0;
    auto step = [&](bool synchronise) {
      const int64_t before = fake::host_waits();
      std::vector<std::shared_ptr<void>> open;
      if (synchronise) {
        training.step();
      } else {
        const auto scope_of_step = training.net.no_sync();
        training.step();
        waits_unsynchronised += fake::host_waits() - before;
      }
    };
    const TimeSyncReport report =
        time_sync(TimeSyncOptions().steps(2).deadline(5min), step, training.net, training.optimizer);
    EXPECT_EQ(waits_unsynchronised, 0) << "the host waited for the device within a measured window";
    for (const StepTimes& each : report.ranks) {
      EXPECT_GE(each.forward, 0.030);  // three layers
      EXPECT_GE(each.backward, 0.040);  // two of them have a relu
      EXPECT_GE(each.unsynchronised.median, each.forward + each.backward);
      EXPECT_GE(each.rest, 0);
    }
    ASSERT_TRUE(report.reduction.has_value());
  });
}

TEST(TimingOnDevices, BucketsHaveTheTimesOfTheStream) {
  on_two_devices([](int rank, int) {
    DeviceTraining training(rank);
    const fake::Scope scope({.schedule = Schedule::eager,
                             .poison = false,
                             .delays = {{"threshold_backward.grad_input", 20ms}, {"copy", 20ms}}});
    training.step();
    training.step();
    const BucketsReport first = buckets(training.net, BucketsOptions().deadline(5min));
    EXPECT_TRUE(first.ranks.at(0).recording_began);
    EXPECT_TRUE(first.ranks.at(0).buckets.empty());
    std::ostringstream text;
    text << first;
    EXPECT_THAT(text.str(), HasSubstr("ask again after a step"));
    training.step();
    const BucketsReport report = buckets(training.net, BucketsOptions().deadline(5min));
    ASSERT_EQ(report.ranks.size(), 2U);
    for (const RankBuckets& each : report.ranks) {
      ASSERT_EQ(each.buckets.size(), report.buckets.size());
      ASSERT_GT(each.buckets.size(), 1U);
      EXPECT_GE(each.backward_end, 0.040);
      for (const BucketTimes& times : each.buckets) {
        EXPECT_GE(*times.start, times.ready);
        EXPECT_GT(*times.end, *times.start);
      }
      EXPECT_GE(*each.buckets.front().end - each.buckets.front().ready, 0.040);  // copies to the host and back
      EXPECT_GT(each.buckets.back().ready, each.buckets.front().ready + 0.020);  // a slow operator lies between them
      EXPECT_GT(each.exposed, 0);
      EXPECT_TRUE(each.hidden.has_value());
    }
  });
}

TEST(TimingOnDevices, ATimelineHasTheCollectivesOfTheDevice) {
  on_two_devices([](int rank, int) {
    const std::string path = std::string(std::getenv("LOCKSTEP_TEST_FOLDER")) + "/timeline.json";
    DeviceTraining training(rank);
    for (int i = 0; i < 2; ++i) training.step();  // buckets are laid out
    {
      const auto recording = record_operators();
      training.step();
    }
    const TimelineReport report = timeline(path, TimelineOptions().deadline(5min));
    if (rank != 0) return;
    const auto events = nlohmann::json::parse(std::ifstream(path)).at("traceEvents");
    int64_t begins = 0;
    for (const auto& each : events) begins += each.value("cat", "") == "device" && each.at("ph") == "b";
    EXPECT_EQ(begins, 2 * static_cast<int64_t>(training.net.buckets().size()));  // of both ranks, of one step
  });
}

}  // namespace
}  // namespace lockstep::inspect
