// Tensors of every dtype, size, stride and alignment, for the tests of kernels on the CPU and on a device.
#pragma once
#include <torch/torch.h>

#include <cstdint>
#include <random>
#include <vector>

namespace lockstep::cuda {

inline const at::ScalarType kTypes[] = {
    at::kBool,          at::kByte,        at::kChar,          at::kShort,           at::kInt,
    at::kLong,          at::kUInt16,      at::kUInt32,        at::kUInt64,          at::kHalf,
    at::kBFloat16,      at::kFloat,       at::kDouble,        at::kComplexHalf,     at::kComplexFloat,
    at::kComplexDouble, at::kFloat8_e5m2, at::kFloat8_e4m3fn, at::kFloat8_e5m2fnuz, at::kFloat8_e4m3fnuz,
    at::kFloat8_e8m0fnu};
inline const at::ScalarType kFloatTypes[] = {
    at::kHalf,          at::kBFloat16,        at::kFloat,          at::kDouble,
    at::kComplexHalf,   at::kComplexFloat,    at::kComplexDouble,  at::kFloat8_e5m2,
    at::kFloat8_e4m3fn, at::kFloat8_e5m2fnuz, at::kFloat8_e4m3fnuz};

inline at::Tensor sample(at::ScalarType dtype, int64_t count) {
  torch::manual_seed(7);
  if (at::isComplexType(dtype)) return torch::randn({count}, at::kComplexFloat).to(dtype);
  return (torch::randn({count}) * (at::isFloatingType(dtype) ? 1.0 : 50.0)).abs().to(dtype);
}

inline at::Tensor random_bytes(at::ScalarType dtype, int64_t count) {
  const at::Tensor tensor = torch::empty({count}, dtype);
  std::mt19937_64 random(static_cast<uint64_t>(count));
  auto* bytes = static_cast<uint8_t*>(tensor.mutable_data_ptr());
  for (size_t i = 0; i < tensor.nbytes(); ++i)
    bytes[i] = static_cast<uint8_t>(dtype == at::kBool ? random() % 2 : random());
  return tensor;
}

/// Views of a tensor of shape [30, 40, 8].
inline std::vector<at::Tensor> views_of(const at::Tensor& base) {
  return {base.transpose(0, 2),        base.permute({1, 2, 0}),   base.select(1, 3),
          base.slice(0, 1, 25, 7),     base.slice(2, 0, 8, 2),    base.narrow(1, 5, 20).transpose(0, 1),
          base[3][4].expand({100, 8}), base[3][4][0].expand({9}), base.unfold(0, 9, 2),
          base.diagonal(0, 0, 1),      base.slice(0, 3, 3),       base.narrow(2, 1, 5)};
}

}  // namespace lockstep::cuda
