// The memory of a device by the table of a plug-in, which is made up here and registered for the CPU; and what holds
// memory after an allocation has failed.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <sstream>

#include "inspectors/device/state.h"
#include "inspectors/gpus/gpus.h"
#include "inspectors/memory/device.h"
#include "inspectors/memory/memory.h"
#include "lockstep/ddp.h"
#include "tests/support/spawn_ranks.h"

namespace lockstep::inspect {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::spawn_ranks;

lockstep_allocator_state allocator_of_test;
bool has_allocator = true;

const lockstep_device_state_v1 kTable{
    .abi = kDeviceStateAbi,
    .work = [](int) -> int { return LOCKSTEP_DEVICE_UNUSED; },
    .finish = [](int, lockstep_device_error*) { return true; },
    .allocator =
        [](int, bool snapshot, lockstep_allocator_state* state) {
          *state = allocator_of_test;
          if (!snapshot) state->largest_free = -1;
          return has_allocator;
        },
    .bus_id = [](int, char* text, size_t size) { return std::snprintf(text, size, "0000:3B:00.0") > 0; },
    .memory =
        [](int, uint64_t* used, uint64_t* total) {
          *used = 7'000'000;
          *total = 9'000'000;
          return true;
        }};

class MemoryOfADevice : public ::testing::Test {
 protected:
  MemoryOfADevice() {
    gpus::set_library("libnvidia-ml-of-no-driver.so.1");
    allocator_of_test = {};
    allocator_of_test.allocated = 4'000'000;
    allocator_of_test.allocated_peak = 5'000'000;
    allocator_of_test.reserved = 6'000'000;
    allocator_of_test.inactive_split = 1'500'000;
    allocator_of_test.largest_free = 250'000;
    allocator_of_test.segments = 3;
    allocator_of_test.retries = 2;
    allocator_of_test.failures = 1;
    has_allocator = true;
    set_device_state(at::kCPU, &kTable);
  }
  ~MemoryOfADevice() override { set_device_state(at::kCPU, nullptr); }
};

TEST_F(MemoryOfADevice, TheTableFillsTheFactsAndTheReport) {
  spawn_ranks(2, [](int rank, int) {
    const MemoryReport report = memory();
    ASSERT_EQ(report.ranks.size(), 2U);
    const auto& device = report.ranks[static_cast<size_t>(rank)].device;
    ASSERT_TRUE(device.has_value());
    EXPECT_EQ(device->device, "cpu");
    EXPECT_EQ(device->bus_id, "0000:3b:00.0");
    EXPECT_EQ(device->allocated, 4'000'000);
    EXPECT_EQ(device->peak, 5'000'000);
    EXPECT_EQ(device->reserved, 6'000'000);
    EXPECT_EQ(device->split, 1'500'000);
    EXPECT_EQ(device->largest_free, 250'000) << "of the snapshot";
    EXPECT_EQ(device->segments, 3);
    EXPECT_EQ(device->used, 7'000'000);
    EXPECT_EQ(device->total, 9'000'000);
    std::ostringstream text;
    text << report;
    for (const char* row : {"device, in use by all", "7.0 MB of 9.0 MB", "6.0 MB in 3",
                            "LibTorch, free in split blocks", "250.0 kB", "2, 1"})
      EXPECT_THAT(text.str(), HasSubstr(row));
    EXPECT_THAT(text.str(), Not(HasSubstr("by other programs"))) << "no driver was asked";
  });
}

TEST_F(MemoryOfADevice, NothingIsKnownOfADeviceThatLibTorchHasNotUsed) {
  has_allocator = false;
  EXPECT_FALSE(device_memory().has_value());
  set_device_state(at::kCPU, nullptr);
  EXPECT_FALSE(device_memory().has_value());
}

TEST_F(MemoryOfADevice, AnotherVersionOfTheTableIsRefused) {
  static const lockstep_device_state_v1 other{.abi = kDeviceStateAbi + 1};
  EXPECT_THROW(set_device_state(at::kCPU, &other), c10::Error);
}

int64_t counted_bytes(const OutOfMemoryReport& report, const std::string& name, const std::string& kind) {
  for (const MemoryHolder& each : report.holders)
    if (each.name == name && each.kind == kind) return each.bytes;
  return -1;
}

TEST_F(MemoryOfADevice, AfterAFailureVariablesAreListedByWhatTheyHold) {
  torch::nn::Linear net(100, 50);
  net(torch::ones({1, 100})).sum().backward();
  torch::optim::Adam adam(net->parameters(), torch::optim::AdamOptions(0.1));
  adam.step();
  const torch::Tensor large = torch::zeros({1000, 100}), view = large[3];
  const std::vector<torch::Tensor> batches = {torch::zeros({10}), view, torch::zeros({2, 30})};
  const torch::Tensor elsewhere = torch::empty({1 << 20}, at::kMeta);
  const OutOfMemoryReport report =
      out_of_memory({named_memory("net", net), named_memory("adam", adam), named_memory("large", large),
                     named_memory("batches", batches), named_memory("elsewhere", elsewhere)});
  EXPECT_EQ(report.device, "cpu");
  ASSERT_GE(report.holders.size(), 5U);
  EXPECT_EQ(report.holders[0].name, "large");
  EXPECT_EQ(report.holders[0].bytes, 400'000);
  EXPECT_EQ(counted_bytes(report, "net", "parameter"), 5050 * 4);
  EXPECT_EQ(counted_bytes(report, "net", "gradient"), 5050 * 4);
  EXPECT_GE(counted_bytes(report, "adam", "state"), 2 * 5050 * 4);
  EXPECT_EQ(counted_bytes(report, "batches", "tensor"), 70 * 4) << "the other is large's";
  EXPECT_EQ(counted_bytes(report, "elsewhere", "tensor"), -1) << "on another device";
  std::ostringstream text;
  text << report;
  EXPECT_THAT(text.str(), HasSubstr("variables that hold memory on cpu\n"));
  EXPECT_THAT(text.str(), HasSubstr("[1000, 100], 400.0 kB"));
  EXPECT_THAT(text.str(), HasSubstr("weight [50, 100], 20.0 kB"));
  EXPECT_THAT(text.str(), HasSubstr("of the 4.0 MB that LibTorch has allocated"));
  EXPECT_THAT(text.str(), HasSubstr("freed since, such as activations: 1.0 MB (the peak was 5.0 MB)"));
  EXPECT_THAT(text.str(),
              HasSubstr("reserved by LibTorch and free: 2.0 MB, of which 1.5 MB in split blocks; the largest "
                        "free block has 250.0 kB"));
  EXPECT_THAT(text.str(), HasSubstr("the device: 7.0 MB of 9.0 MB in use by all processes"));
}

TEST_F(MemoryOfADevice, ManyVariablesAreCutOffAndCounted) {
  std::vector<torch::Tensor> tensors;
  std::vector<NamedMemory> named;
  for (int i = 0; i < 20; ++i) {
    tensors.push_back(torch::zeros({100 * (i + 1)}));
    named.push_back(named_memory("x" + std::to_string(i), tensors.back()));
  }
  std::ostringstream text;
  text << out_of_memory(named);
  EXPECT_THAT(text.str(), HasSubstr("x19: tensors"));
  EXPECT_THAT(text.str(), Not(HasSubstr("x3: tensors")));
  EXPECT_THAT(text.str(), HasSubstr("8 others"));
}

TEST(BucketsOfAWrapper, AreCountedOnceWhetherGradientsLieInThemOrNot) {
  for (const bool view : {false, true})
    spawn_ranks(2, [view](int, int) {
      auto net = ddp::DistributedDataParallel(torch::nn::Linear(8, 4), ddp::Options().gradient_as_bucket_view(view));
      net(torch::ones({1, 8})).sum().backward();
      const OutOfMemoryReport report = out_of_memory({named_memory("net", net)}, at::kCPU);
      const int64_t gradients = counted_bytes(report, "net", "gradient"),
                    buckets = counted_bytes(report, "net", "bucket");
      EXPECT_GE(gradients, 36 * 4) << view;
      if (view)
        EXPECT_EQ(buckets, -1) << "the gradients are the buckets";
      else
        EXPECT_GE(buckets, 36 * 4);
    });
}

}  // namespace
}  // namespace lockstep::inspect
