// The kernels on a device, by way of the plug-in, against the CPU. Skipped where there is no GPU.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <torch/cuda.h>
#include <torch/torch.h>

#include <cstring>
#include <limits>
#include <vector>

#include "inspectors/device/functions.h"
#include "inspectors/fingerprint/fingerprint.h"
#include "tests/cuda/samples.h"

namespace lockstep::cuda {
namespace {

using inspect::fingerprint;

class Device : public testing::Test {
 protected:
  void SetUp() override {
    // LibTorch's CUDA half, where this LibTorch has one.
    if (!::dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL) || !torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
    ASSERT_NE(inspect::device_functions(at::kCUDA), nullptr)
        << "the plug-in is not beside liblockstep, or can't be loaded";
  }
};

void expect_bits_of_the_cpu(const std::vector<at::Tensor>& on_cpu, const std::vector<at::Tensor>& on_device) {
  const auto expected = fingerprint(at::TensorList(on_cpu)), found = fingerprint(at::TensorList(on_device));
  for (size_t i = 0; i < found.size(); ++i)
    EXPECT_EQ(found[i], expected[i]) << on_cpu[i].scalar_type() << " " << on_cpu[i].sizes() << " "
                                     << on_cpu[i].strides();
}

TEST_F(Device, EveryDtypeSizeStrideAndAlignmentHasTheBitsOfTheCpu) {
  for (const at::ScalarType dtype : kTypes) {
    const auto size = static_cast<int64_t>(c10::elementSize(dtype));
    for (const at::Tensor& base : {sample(dtype, 200000 / size + 20), random_bytes(dtype, 200000 / size + 20)}) {
      const at::Tensor copy = base.to(at::kCUDA);
      std::vector<at::Tensor> on_cpu, on_device;
      for (int64_t offset = 0; offset <= 16; ++offset)
        for (const int64_t count : {int64_t{1}, 1000 / size, 65536 / size, 200000 / size}) {
          on_cpu.push_back(base.narrow(0, offset, count));
          on_device.push_back(copy.narrow(0, offset, count));
        }
      expect_bits_of_the_cpu(on_cpu, on_device);
    }
    const at::Tensor base = sample(dtype, 30 * 40 * 8).reshape({30, 40, 8});
    expect_bits_of_the_cpu(views_of(base), views_of(base.to(at::kCUDA)));
  }
}

TEST_F(Device, LargeTensorsAndManySmallOnesHaveTheBitsOfTheCpu) {
  const at::Tensor large = sample(at::kBFloat16, 200 * 32768 + 77), values = sample(at::kFloat, 20000);
  const at::Tensor large_copy = large.to(at::kCUDA), values_copy = values.to(at::kCUDA);
  std::vector<at::Tensor> on_cpu = {large}, on_device = {large_copy};
  for (int64_t i = 0; i < 10000; ++i) {
    on_cpu.push_back(values.narrow(0, i, 1 + i % 100));
    on_device.push_back(values_copy.narrow(0, i, 1 + i % 100));
  }
  for (int round = 0; round < 20; ++round) expect_bits_of_the_cpu(on_cpu, on_device);
}

TEST_F(Device, TheSentinelNamesTheFirstBadTensorAndReturnsBeforeItIsKnown) {
  const auto* functions = inspect::device_functions(at::kCUDA);
  for (const at::ScalarType dtype : kFloatTypes) {
    std::vector<at::Tensor> tensors = {sample(dtype, 70000).to(at::kCUDA), torch::ones({5}, at::kLong).to(at::kCUDA),
                                       sample(dtype, 100000).to(at::kCUDA)};
    EXPECT_EQ(functions->first_bad(tensors).item<int32_t>(), std::numeric_limits<int32_t>::max()) << dtype;
    const at::Tensor bad = torch::full({1}, std::numeric_limits<float>::quiet_NaN(), at::kFloat).to(dtype);
    tensors[2].narrow(0, 99999, 1).copy_(bad.to(at::kCUDA));
    EXPECT_EQ(functions->first_bad(tensors).item<int32_t>(), 2) << dtype;
    tensors[0].narrow(0, 17, 1).copy_(bad.to(at::kCUDA));
    EXPECT_EQ(functions->first_bad(tensors).item<int32_t>(), 0) << dtype;
  }
}

}  // namespace
}  // namespace lockstep::cuda
