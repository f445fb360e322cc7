// The kernels' bodies, run as whole grids on the CPU, against the CPU's own paths: the same bits for every dtype, size,
// stride and alignment, in any order of blocks and warps.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "cuda/launch_plan.h"
#include "inspectors/fingerprint/fingerprint.h"
#include "inspectors/fingerprint/kernels.h"
#include "inspectors/trace/tensor_values.h"
#include "tests/cuda/cpu_grid.h"
#include "tests/cuda/samples.h"

namespace lockstep::cuda {
namespace {

using inspect::Fingerprint;
using inspect::fingerprint;

/// Memory of a launch, aligned as a device's is and full of garbage.
class Memory {
 public:
  explicit Memory(size_t bytes) : bytes_(bytes + 64, 0xa5) {}
  uint8_t* data() { return reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(bytes_.data()) + 63) / 64 * 64); }

 private:
  std::vector<uint8_t> bytes_;
};

std::vector<Fingerprint> by_grid(at::TensorList tensors, GridOrder order, uint32_t seed = 1) {
  const LaunchPlan plan(tensors, LaunchPlan::Purpose::fingerprint);
  Memory table(plan.table_bytes()), scratch(plan.scratch_bytes());
  plan.write_table(table.data());
  run_grid(plan.fingerprint_launch(table.data(), scratch.data()), plan.blocks(), order, seed);
  std::vector<Fingerprint> results(plan.tensors());
  static_assert(sizeof(Fingerprint) == sizeof(FingerprintRecord));
  std::memcpy(static_cast<void*>(results.data()), table.data() + plan.output_offset(),
              results.size() * sizeof(Fingerprint));
  return results;
}

std::string text(const Fingerprint& print) {
  std::ostringstream out;
  out << std::hexfloat << print.hash[0] << " " << print.hash[1] << " nan " << print.nan_count << " inf "
      << print.inf_count << " norm " << print.norm << " max " << print.abs_max;
  return out.str();
}

void expect_bits_of_the_cpu(at::TensorList tensors, GridOrder order, const std::string& what) {
  const std::vector<Fingerprint> expected = fingerprint(tensors), found = by_grid(tensors, order);
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i)
    EXPECT_EQ(found[i], expected[i]) << what << ", tensor " << i << ": " << tensors[i].scalar_type() << " "
                                     << tensors[i].sizes() << " " << tensors[i].strides() << "\n  grid "
                                     << text(found[i]) << "\n  cpu  " << text(expected[i]);
}

TEST(FingerprintBody, EveryDtypeAndSizeHasTheBitsOfTheCpu) {
  for (const at::ScalarType dtype : kTypes) {
    const auto size = static_cast<int64_t>(c10::elementSize(dtype));
    std::vector<at::Tensor> tensors;
    for (const int64_t count : {0L, 1L, 2L, 3L, 7L, 15L, 17L, 100L, 1024 / size, 1024 / size + 1, 5000 / size,
                                65536 / size - 1, 65536 / size, 65536 / size + 1, 3 * 65536 / size + 700})
      tensors.push_back(sample(dtype, count));
    expect_bits_of_the_cpu(tensors, GridOrder::forward, "usual values");
  }
}

TEST(FingerprintBody, AnyBytesHaveTheBitsOfTheCpu) {
  for (const at::ScalarType dtype : kTypes) {
    const auto size = static_cast<int64_t>(c10::elementSize(dtype));
    const std::vector<at::Tensor> tensors = {random_bytes(dtype, 65536 / size), random_bytes(dtype, 70000 / size),
                                             random_bytes(dtype, 900 / size)};
    expect_bits_of_the_cpu(tensors, GridOrder::shuffled, "random bytes");
  }
}

TEST(FingerprintBody, EveryPatternOf8And16BitsHasTheBitsOfTheCpu) {
  const at::Tensor patterns = torch::arange(65536, at::kInt).to(at::kUInt16),
                   bytes = torch::arange(256, at::kInt).to(at::kByte);
  std::vector<at::Tensor> tensors = {patterns.view(at::kHalf), patterns.view(at::kBFloat16), patterns.view(at::kShort)};
  for (const at::ScalarType dtype :
       {at::kFloat8_e5m2, at::kFloat8_e4m3fn, at::kFloat8_e5m2fnuz, at::kFloat8_e4m3fnuz, at::kChar})
    tensors.push_back(bytes.view(dtype));
  expect_bits_of_the_cpu(tensors, GridOrder::forward, "all patterns");
  // Each by itself, so that none hides another.
  tensors.clear();
  for (const at::ScalarType dtype : {at::kFloat8_e5m2, at::kFloat8_e4m3fn, at::kFloat8_e5m2fnuz, at::kFloat8_e4m3fnuz})
    for (int64_t i = 0; i < 256; ++i) tensors.push_back(bytes.narrow(0, i, 1).view(dtype));
  expect_bits_of_the_cpu(tensors, GridOrder::forward, "one pattern");
}

TEST(FingerprintBody, StripesThatAreReadWithCareHaveTheBitsOfTheCpu) {
  const double kInf = std::numeric_limits<double>::infinity(), kNan = std::numeric_limits<double>::quiet_NaN();
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kComplexFloat}) {
    std::vector<at::Tensor> tensors;
    for (const double value : {kInf, -kInf, kNan, 1e30, 1e-30, 1e-42, 3e38, 6e-8, 1e-300, 1e300, 0.0, -0.0})
      for (const int64_t index : {0L, 3L, 299L, 20000L, 33000L, 35000L}) {
        at::Tensor tensor = sample(dtype, 35001);
        tensor[index] = torch::tensor(value, at::kDouble).to(dtype);
        tensors.push_back(tensor);
      }
    tensors.push_back(torch::full({40000}, 1e-20, at::kDouble).to(dtype));
    tensors.push_back(torch::full({40000}, kNan, at::kDouble).to(dtype));
    tensors.push_back(torch::zeros({40000}, dtype));
    expect_bits_of_the_cpu(tensors, GridOrder::forward, "special values");
  }
}

TEST(FingerprintBody, EveryAlignmentHasTheBitsOfTheCpu) {
  for (const at::ScalarType dtype : kTypes) {
    const auto size = static_cast<int64_t>(c10::elementSize(dtype));
    const at::Tensor base = sample(dtype, 70000 / size + 20);
    std::vector<at::Tensor> views;
    for (int64_t offset = 0; offset <= 16; ++offset) views.push_back(base.narrow(0, offset, 70000 / size));
    expect_bits_of_the_cpu(views, GridOrder::forward, "offsets");
  }
}

TEST(FingerprintBody, EveryViewHasTheBitsOfTheCpu) {
  for (const at::ScalarType dtype : kTypes) {
    const at::Tensor base = sample(dtype, 30 * 40 * 8).reshape({30, 40, 8});
    expect_bits_of_the_cpu(views_of(base), GridOrder::forward, "views");
  }
}

TEST(FingerprintBody, MoreDimensionsThanARecordHoldsAreCopied) {
  std::vector<int64_t> order;
  for (int64_t d = 11; d >= 0; --d) order.push_back(d);
  const at::Tensor tensor = sample(at::kFloat, 4096).reshape(std::vector<int64_t>(12, 2)).permute(order);
  expect_bits_of_the_cpu({tensor}, GridOrder::forward, "12 dimensions");
}

TEST(FingerprintBody, LazilyConjugatedAndNegatedTensorsCountAsWhatTheyAre) {
  const at::Tensor base = sample(at::kComplexFloat, 100);
  expect_bits_of_the_cpu({base.conj(), at::imag(base.conj()), base}, GridOrder::forward, "lazy");
}

TEST(FingerprintBody, TheOrderOfBlocksAndWarpsChangesNothing) {
  // 130 chunks in three groups, 65 chunks in two, and tensors of one chunk between them.
  std::vector<at::Tensor> tensors = {sample(at::kBFloat16, 129 * 32768 + 77), sample(at::kLong, 5),
                                     sample(at::kFloat, 64 * 16384 + 1), torch::empty({0}),
                                     sample(at::kHalf, 64 * 32768)};
  tensors[0].view(-1)[70 * 32768] = std::numeric_limits<float>::infinity();
  for (const GridOrder order : kGridOrders)
    expect_bits_of_the_cpu(tensors, order, "order " + std::to_string(static_cast<int>(order)));
  for (uint32_t seed = 2; seed < 6; ++seed)
    EXPECT_EQ(by_grid(tensors, GridOrder::interleaved, seed), by_grid(tensors, GridOrder::forward)) << seed;
}

TEST(FingerprintBody, TenThousandSmallTensorsAreOneLaunch) {
  std::vector<at::Tensor> tensors;
  const at::Tensor values = sample(at::kFloat, 20000);
  for (int64_t i = 0; i < 10000; ++i) tensors.push_back(values.narrow(0, i, 1 + i % 100));
  const LaunchPlan plan(tensors, LaunchPlan::Purpose::fingerprint);
  EXPECT_EQ(plan.blocks(), 10000U);
  expect_bits_of_the_cpu(tensors, GridOrder::shuffled, "small tensors");
}

TEST(FingerprintBody, AFlippedBitChangesTheHash) {
  const at::Tensor tensor = sample(at::kFloat, 40000);
  const Fingerprint before = by_grid(tensor, GridOrder::forward).front();
  for (const int64_t index : {0, 16384, 39999}) {
    const at::Tensor changed = tensor.clone();
    static_cast<uint8_t*>(changed.mutable_data_ptr())[index * 4] ^= 1;
    const Fingerprint after = by_grid(changed, GridOrder::forward).front();
    EXPECT_NE(after.hash[0], before.hash[0]) << index;
    EXPECT_NE(after.hash[1], before.hash[1]) << index;
  }
}

TEST(LaunchPlan, NothingAndEmptyTensorsNeedNoLaunch) {
  EXPECT_EQ(LaunchPlan({}, LaunchPlan::Purpose::fingerprint).blocks(), 0U);
  const std::vector<at::Tensor> empty = {torch::empty({0, 3}), torch::empty({3, 0}, at::kLong)};
  EXPECT_EQ(LaunchPlan(empty, LaunchPlan::Purpose::fingerprint).blocks(), 0U);
  expect_bits_of_the_cpu(empty, GridOrder::forward, "empty");
}

TEST(LaunchPlan, TensorsWithoutStorageAreNamed) {
  const std::vector<at::Tensor> tensors = {torch::ones({2}), torch::ones({2}).to_sparse()};
  try {
    LaunchPlan plan(tensors, LaunchPlan::Purpose::fingerprint);
    FAIL();
  } catch (const c10::Error& error) {
    EXPECT_NE(std::string(error.what()).find("tensor 1"), std::string::npos) << error.what();
  }
}

uint32_t first_bad(at::TensorList tensors, GridOrder order) {
  const LaunchPlan plan(tensors, LaunchPlan::Purpose::sentinel);
  Memory table(plan.table_bytes());
  plan.write_table(table.data());
  run_grid(plan.sentinel_launch(table.data()), plan.blocks(), order);
  uint32_t flag = 0;
  std::memcpy(&flag, table.data() + plan.output_offset(), sizeof flag);
  return flag;
}

TEST(SentinelBody, NamesTheFirstTensorWithABadValueInAnyOrder) {
  for (const at::ScalarType dtype : kFloatTypes) {
    std::vector<at::Tensor> tensors = {sample(dtype, 70000), torch::ones({5}, at::kLong),
                                       torch::empty({0}),    sample(dtype, 40000),
                                       sample(dtype, 3),     sample(dtype, 100000)};
    for (const GridOrder order : kGridOrders) EXPECT_EQ(first_bad(tensors, order), kNoneBad) << dtype;
    tensors[5].view(-1)[99999] = std::numeric_limits<float>::quiet_NaN();
    for (const GridOrder order : kGridOrders) EXPECT_EQ(first_bad(tensors, order), 5U) << dtype;
    tensors[3].view(-1)[17] = std::numeric_limits<float>::quiet_NaN();
    for (const GridOrder order : kGridOrders) EXPECT_EQ(first_bad(tensors, order), 3U) << dtype;
  }
}

TEST(SentinelBody, AgreesWithTheCpuOnEveryPatternAndPlace) {
  const at::Tensor patterns = torch::arange(65536, at::kInt).to(at::kUInt16),
                   bytes = torch::arange(256, at::kInt).to(at::kByte);
  const auto expect_agreement = [](const at::Tensor& tensor) {
    EXPECT_EQ(first_bad(tensor, GridOrder::forward) == 0, inspect::bad_values(tensor).any())
        << tensor.scalar_type() << " " << tensor;
  };
  for (const at::ScalarType dtype : {at::kHalf, at::kBFloat16})
    for (int64_t i = 0; i < 65536; i += i % 128 == 0 ? 1 : 127) expect_agreement(patterns.narrow(0, i, 1).view(dtype));
  for (const at::ScalarType dtype : {at::kFloat8_e5m2, at::kFloat8_e4m3fn, at::kFloat8_e5m2fnuz, at::kFloat8_e4m3fnuz})
    for (int64_t i = 0; i < 256; ++i) expect_agreement(bytes.narrow(0, i, 1).view(dtype));
  for (const double value : {1e38, -1e38, 1e-45, std::numeric_limits<double>::infinity(),
                             -std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()})
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kComplexDouble})
      expect_agreement(torch::full({1}, value, at::kDouble).to(dtype));
  // Anywhere in a tensor, contiguous, shifted and strided.
  for (const int64_t index : {0, 1, 15, 16, 4095, 16383, 16384, 20011}) {
    at::Tensor tensor = torch::ones({20012});
    tensor[index] = std::numeric_limits<float>::infinity();
    EXPECT_EQ(first_bad(tensor, GridOrder::forward), 0U) << index;
    EXPECT_EQ(first_bad(torch::cat({torch::ones({1}), tensor}).narrow(0, 1, 20012), GridOrder::forward), 0U) << index;
    EXPECT_EQ(first_bad(tensor.reshape({4, 5003}).t(), GridOrder::forward), 0U) << index;
  }
}

}  // namespace
}  // namespace lockstep::cuda
