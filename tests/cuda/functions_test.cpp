// fingerprint() by the functions of a device: here the CPU has some, which run the kernels' bodies as grids.
#include "inspectors/device/functions.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstring>
#include <vector>

#include "cuda/launch_plan.h"
#include "inspectors/fingerprint/fingerprint.h"
#include "tests/cuda/cpu_grid.h"
#include "tests/cuda/samples.h"

namespace lockstep::cuda {
namespace {

using inspect::DeviceFunctions;
using inspect::fingerprint;

int calls = 0;

at::Tensor fingerprint_by_grid(at::TensorList tensors) {
  ++calls;
  const LaunchPlan plan(tensors, LaunchPlan::Purpose::fingerprint);
  const at::Tensor table = torch::empty({static_cast<int64_t>(plan.table_bytes())}, at::kByte);
  const at::Tensor scratch = torch::empty({static_cast<int64_t>(plan.scratch_bytes())}, at::kByte);
  plan.write_table(table.mutable_data_ptr<uint8_t>());
  run_grid(plan.fingerprint_launch(table.mutable_data_ptr<uint8_t>(), scratch.mutable_data_ptr<uint8_t>()),
           plan.blocks(), GridOrder::shuffled);
  const auto count = static_cast<int64_t>(plan.tensors());
  return table.narrow(0, static_cast<int64_t>(plan.output_offset()), count * 48).view(at::kLong).view({count, 6});
}

class Functions : public testing::Test {
 protected:
  void TearDown() override { inspect::set_device_functions(at::kCPU, nullptr); }
};

TEST_F(Functions, FingerprintsOfADeviceComeFromOneCall) {
  std::vector<at::Tensor> tensors;
  for (const at::ScalarType dtype : kTypes) tensors.push_back(sample(dtype, 500));
  tensors.push_back(torch::empty({0}));
  const auto expected = fingerprint(at::TensorList(tensors));
  static const DeviceFunctions functions{.fingerprint = fingerprint_by_grid};
  inspect::set_device_functions(at::kCPU, &functions);
  calls = 0;
  EXPECT_EQ(fingerprint(at::TensorList(tensors)), expected);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(fingerprint(tensors[3]), expected[3]);
  EXPECT_THROW(fingerprint(torch::ones({2}).to_sparse()), c10::Error);
}

TEST_F(Functions, ThoseOfAnotherVersionAreRefused) {
  static const DeviceFunctions other_abi{.abi = inspect::kDeviceFunctionsAbi + 1, .fingerprint = fingerprint_by_grid};
  EXPECT_THROW(inspect::set_device_functions(at::kCPU, &other_abi), c10::Error);
  static const DeviceFunctions other_libtorch{.libtorch = "1.0.0", .fingerprint = fingerprint_by_grid};
  EXPECT_NE(inspect::version_problem(other_libtorch).find("1.0.0"), std::string::npos);
  EXPECT_EQ(inspect::device_functions(at::kCPU), nullptr);
}

}  // namespace
}  // namespace lockstep::cuda
