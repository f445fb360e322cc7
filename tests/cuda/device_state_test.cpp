// The state of a device by the plug-in's table, NVML, and what holds memory there. Skipped where there is no GPU.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <torch/cuda.h>
#include <torch/torch.h>

#include <cstdio>
#include <sstream>

#include "inspectors/device/state.h"
#include "inspectors/gpus/gpus.h"
#include "inspectors/memory/device.h"
#include "inspectors/memory/memory.h"

namespace lockstep::cuda {
namespace {

using ::testing::HasSubstr;

const at::TensorOptions kOnDevice = at::TensorOptions().device(at::kCUDA, 0);

class DeviceState : public testing::Test {
 protected:
  void SetUp() override {
    // LibTorch's CUDA half, where this LibTorch has one.
    if (!::dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL) || !torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
    table_ = inspect::device_state(at::kCUDA);
    ASSERT_NE(table_, nullptr) << "the plug-in is not beside liblockstep, or can't be loaded";
  }
  const lockstep_device_state_v1* table_ = nullptr;
};

TEST_F(DeviceState, WorkIsWaitedFor) {
  const at::Tensor product = torch::ones({4096, 4096}, kOnDevice).matmul(torch::ones({4096, 4096}, kOnDevice));
  EXPECT_EQ(table_->work(0), LOCKSTEP_DEVICE_USED);
  lockstep_device_error error = {};
  EXPECT_TRUE(table_->finish(0, &error)) << error.text;
  EXPECT_EQ(product[5][7].item<float>(), 4096);
}

TEST_F(DeviceState, TheAllocatorsNumbers) {
  torch::empty({1}, kOnDevice);
  lockstep_allocator_state before = {}, during = {}, after = {};
  ASSERT_TRUE(table_->allocator(0, true, &before));
  {
    const at::Tensor tensor = torch::empty({64 << 20}, kOnDevice.dtype(at::kByte));
    ASSERT_TRUE(table_->allocator(0, true, &during));
  }
  ASSERT_TRUE(table_->allocator(0, true, &after));
  EXPECT_EQ(during.allocated - before.allocated, 64 << 20);
  EXPECT_EQ(after.allocated, before.allocated);
  EXPECT_GE(during.reserved, during.allocated);
  EXPECT_GE(after.allocated_peak, during.allocated);
  EXPECT_GE(after.largest_free, 64 << 20) << "freed, and kept";
  EXPECT_GE(after.releasable, 64 << 20);
  uint64_t used = 0, total = 0;
  ASSERT_TRUE(table_->memory(0, &used, &total));
  EXPECT_GE(used, static_cast<uint64_t>(after.reserved));
  EXPECT_GT(total, used);
}

TEST_F(DeviceState, NvmlKnowsTheDeviceByItsAddress) {
  char text[32] = {};
  ASSERT_TRUE(table_->bus_id(0, text, sizeof text));
  const gpus::Machine machine = gpus::look(std::chrono::seconds(60));
  EXPECT_EQ(machine.problem, "");
  bool found = false;
  for (const gpus::Gpu& gpu : machine.gpus) {
    if (gpu.bus_id != gpus::normal_bus_id(text)) continue;
    found = true;
    std::printf("%s, driver %s\n", nlohmann::json(gpu).dump().c_str(), machine.driver.c_str());
    EXPECT_EQ(gpu.problem, "");
    EXPECT_FALSE(gpu.name.empty());
    EXPECT_GT(gpu.used_bytes.value_or(0), 0);
    EXPECT_TRUE(gpu.temperature.has_value());
  }
  EXPECT_TRUE(found) << text;
}

TEST_F(DeviceState, AfterAFailedAllocationItsHoldersAreNamed) {
  const at::Tensor held = torch::empty({100, 1 << 20}, kOnDevice.dtype(at::kByte));
  const auto memory = inspect::device_memory();
  ASSERT_TRUE(memory && memory->total);
  EXPECT_THROW(torch::empty({*memory->total}, kOnDevice.dtype(at::kByte)), c10::OutOfMemoryError);
  std::ostringstream text;
  text << inspect::out_of_memory({inspect::named_memory("held", held)});
  EXPECT_THAT(text.str(), HasSubstr("variables that hold memory on cuda:0"));
  EXPECT_THAT(text.str(), HasSubstr("[100, 1048576], 104.9 MB"));
  EXPECT_GE(inspect::device_memory()->failures, 1);
}

using DeviceStateDeathTest = DeviceState;

// In a process of its own: the context is lost.
TEST_F(DeviceStateDeathTest, ADeviceSideAssertIsFoundAtTheEndOfTheCellAndIsNotCuredByAskingAgain) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(
      {
        const at::Tensor row = torch::zeros({4}, kOnDevice);
        const at::Tensor beyond = row.index({torch::full({1}, 7, kOnDevice.dtype(at::kLong))});
        lockstep_device_error error = {};
        if (table_->finish(0, &error)) std::_Exit(1);
        if (error.code != 710 || !error.lost || table_->work(0) != LOCKSTEP_DEVICE_FAILED) std::_Exit(2);
        if (table_->finish(0, &error)) std::_Exit(3);
        std::fprintf(stderr, "%s: %s\n", error.name, error.text);
        std::_Exit(0);
      },
      testing::ExitedWithCode(0), "cudaErrorAssert: device-side assert triggered");
}

}  // namespace
}  // namespace lockstep::cuda
