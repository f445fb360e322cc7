// Fingerprints of tensors: the same for equal elements in equal places, other for anything else; statistics against
// LibTorch's own.
#include "inspectors/fingerprint/fingerprint.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <limits>

namespace lockstep::inspect {
namespace {

const at::ScalarType kTypes[] = {
    at::kBool,          at::kByte,        at::kChar,          at::kShort,           at::kInt,
    at::kLong,          at::kUInt16,      at::kUInt32,        at::kUInt64,          at::kHalf,
    at::kBFloat16,      at::kFloat,       at::kDouble,        at::kComplexHalf,     at::kComplexFloat,
    at::kComplexDouble, at::kFloat8_e5m2, at::kFloat8_e4m3fn, at::kFloat8_e5m2fnuz, at::kFloat8_e4m3fnuz,
    at::kFloat8_e8m0fnu};

at::Tensor sample(at::ScalarType dtype, int64_t count) {
  torch::manual_seed(7);
  // A factor that leaves integers with different values, and float8 within its range.
  if (at::isComplexType(dtype)) return torch::randn({count}, at::kComplexFloat).to(dtype);
  return (torch::randn({count}) * (at::isFloatingType(dtype) ? 1.0 : 50.0)).abs().to(dtype);
}

TEST(Fingerprint, EveryDtypeSeesEachSingleElement) {
  for (const at::ScalarType dtype : kTypes) {
    const at::Tensor tensor = sample(dtype, 1000);
    const Fingerprint before = fingerprint(tensor);
    EXPECT_EQ(fingerprint(tensor.clone()), before) << dtype;
    for (const int64_t place : {0, 499, 999}) {
      const at::Tensor changed = tensor.clone();
      auto* byte = static_cast<uint8_t*>(changed.mutable_data_ptr()) + place * changed.element_size();
      *byte ^= 1;
      EXPECT_NE(fingerprint(changed).hash, before.hash) << dtype << " at " << place;
    }
  }
}

TEST(Fingerprint, StatisticsAreThoseOfLibtorch) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kInt, at::kChar, at::kLong,
                                     at::kFloat8_e4m3fn, at::kUInt16}) {
    const at::Tensor tensor = sample(dtype, 70001);
    const at::Tensor exact = tensor.to(at::kDouble);
    const Fingerprint found = fingerprint(tensor);
    EXPECT_NEAR(found.norm, exact.norm().item<double>(), 1e-6 * found.norm) << dtype;
    EXPECT_EQ(found.abs_max, exact.abs().max().item<double>()) << dtype;
    EXPECT_EQ(found.nan_count + found.inf_count, 0) << dtype;
  }
}

TEST(Fingerprint, NanAndInfAreCountedAndKeptOutOfTheNorm) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kFloat8_e5m2}) {
    at::Tensor values = torch::zeros({5000});
    values[3] = std::numeric_limits<float>::quiet_NaN();
    values[4999] = std::numeric_limits<float>::quiet_NaN();
    values[17] = std::numeric_limits<float>::infinity();
    values[2500] = -std::numeric_limits<float>::infinity();
    values[2501] = std::numeric_limits<float>::infinity();
    values[1] = 3.0F;
    values[4000] = -4.0F;
    const Fingerprint found = fingerprint(values.to(dtype));
    EXPECT_EQ(found.nan_count, 2) << dtype;
    EXPECT_EQ(found.inf_count, 3) << dtype;
    EXPECT_EQ(found.norm, 5.0) << dtype;
    EXPECT_EQ(found.abs_max, 4.0) << dtype;
  }
}

TEST(Fingerprint, AViewHasTheFingerprintOfItsContiguousCopy) {
  for (const at::ScalarType dtype : {at::kFloat, at::kChar, at::kHalf, at::kComplexDouble}) {
    const at::Tensor base = sample(dtype, 60 * 70 * 8).reshape({60, 70, 8});
    const at::Tensor views[] = {
        base.transpose(0, 2),        base.permute({1, 2, 0}), base.select(1, 3),
        base.slice(0, 1, 50, 7),     base.slice(2, 0, 8, 2),  base.narrow(1, 5, 20).transpose(0, 1),
        base[3][4].expand({100, 8}), base.unfold(0, 9, 2),    base.diagonal(0, 0, 1)};
    for (const at::Tensor& view : views)
      EXPECT_EQ(fingerprint(view), fingerprint(view.contiguous())) << dtype << view.sizes() << view.strides();
  }
}

TEST(Fingerprint, ALargeViewThatEndsWithinAChunkIsReadWhole) {
  const at::Tensor base = sample(at::kFloat, 301 * 409).reshape({301, 409});
  EXPECT_EQ(fingerprint(base.t()), fingerprint(base.t().contiguous()));
  EXPECT_NE(fingerprint(base.t()).hash, fingerprint(base.reshape({409, 301})).hash);
}

TEST(Fingerprint, LazilyNegatedAndConjugatedTensorsCountAsWhatTheyAre) {
  const at::Tensor base = sample(at::kComplexFloat, 100);
  EXPECT_EQ(fingerprint(base.conj()), fingerprint(base.conj().resolve_conj()));
  EXPECT_NE(fingerprint(base.conj()).hash, fingerprint(base).hash);
}

TEST(Fingerprint, ShapeAndDtypeBelongToIt) {
  const at::Tensor flat = torch::zeros({12});
  EXPECT_NE(fingerprint(flat).hash, fingerprint(flat.reshape({3, 4})).hash);
  EXPECT_NE(fingerprint(flat).hash, fingerprint(torch::zeros({12}, at::kInt)).hash);
  EXPECT_NE(fingerprint(flat).hash, fingerprint(torch::zeros({13})).hash);
}

TEST(Fingerprint, EmptyAnd0dTensorsHaveOne) {
  EXPECT_EQ(fingerprint(torch::empty({0, 3})), fingerprint(torch::empty({0, 3})));
  EXPECT_NE(fingerprint(torch::empty({0, 3})).hash, fingerprint(torch::empty({3, 0})).hash);
  EXPECT_NE(fingerprint(torch::tensor(1.0F)).hash, fingerprint(torch::tensor(2.0F)).hash);
  EXPECT_EQ(fingerprint(torch::tensor(-2.0F)).norm, 2.0);
  EXPECT_TRUE(fingerprint(at::TensorList()).empty());
}

TEST(Fingerprint, SignsOfZeroAreSeen) {
  EXPECT_NE(fingerprint(torch::tensor(0.0F)).hash, fingerprint(torch::tensor(-0.0F)).hash);
}

TEST(Fingerprint, TheNumberOfThreadsChangesNothing) {
  const int before = at::get_num_threads();
  const at::Tensor tensors[] = {sample(at::kFloat, 3000001), sample(at::kBFloat16, 100), sample(at::kDouble, 700000)};
  at::set_num_threads(1);
  const auto alone = fingerprint(at::TensorList(tensors));
  for (const int threads : {2, 3, 5}) {
    at::set_num_threads(threads);
    EXPECT_EQ(fingerprint(at::TensorList(tensors)), alone) << threads;
  }
  at::set_num_threads(before);
}

TEST(Fingerprint, OfAListIsThatOfEach) {
  const std::vector<at::Tensor> tensors = {sample(at::kFloat, 100000), torch::empty({0}), sample(at::kLong, 3)};
  const auto found = fingerprint(tensors);
  ASSERT_EQ(found.size(), 3U);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(found[i], fingerprint(tensors[i])) << i;
}

TEST(Fingerprint, ChunkHashesPointAtWhatDiffers) {
  const at::Tensor tensor = sample(at::kFloat, 100000);  // 6.1 chunks of 16384
  const at::Tensor changed = tensor.clone();
  changed[50000] += 1;
  const auto a = chunk_hashes(tensor), b = chunk_hashes(changed);
  ASSERT_EQ(a.size(), 7U);
  for (size_t i = 0; i < a.size(); ++i) EXPECT_EQ(a[i] == b[i], i != 50000 / 16384) << i;
}

TEST(Fingerprint, TensorsWithoutStorageAreNamed) {
  const std::vector<at::Tensor> tensors = {torch::ones({2}), torch::ones({2}).to_sparse()};
  try {
    fingerprint(tensors);
    FAIL();
  } catch (const c10::Error& error) {
    EXPECT_NE(std::string(error.what()).find("tensor 1"), std::string::npos) << error.what();
  }
  EXPECT_THROW(fingerprint(at::Tensor()), c10::Error);
  EXPECT_THROW(fingerprint(torch::ones({2}, at::kMeta)), c10::Error);
}

}  // namespace
}  // namespace lockstep::inspect
