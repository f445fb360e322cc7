// Fingerprints: 128 bits that two tensors share exactly when their bytes and places are the same (up to a chance of
// 2^-64), with what a reader of a mismatch asks next: how many NaN, how many Inf, which norm, which largest magnitude.
// One pass over memory. The order in which threads finish and the instruction set do not change the result.
//
// Places are logical: a transposed view has the fingerprint of its contiguous copy. Everything here is local.
#pragma once
#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <vector>

namespace lockstep::inspect {

using Hash = std::array<uint64_t, 2>;

struct Fingerprint {
  Hash hash{};  // of bytes, places, dtype and shape
  int64_t nan_count = 0;  // of complex tensors, this and the next: real and imaginary parts
  int64_t inf_count = 0;
  double norm = 0;  // Euclidean, of finite elements
  double abs_max = 0;  // of finite elements (complex: the larger part); 0 for an empty tensor
  bool operator==(const Fingerprint&) const = default;
};

/// Fingerprints `tensors`, in order. Any dtype, any strides, empty ones too; quantized and packed dtypes have no
/// statistics. Tensors of other devices than the CPU are read through a copy, unless a kernel is set for the device.
/// Throws c10::Error for tensors without strided storage (undefined, meta, sparse), naming the index.
std::vector<Fingerprint> fingerprint(at::TensorList tensors);
Fingerprint fingerprint(const at::Tensor& tensor);

/// Bytes of a chunk, the unit in which differences are looked for: elements in logical order, the last chunk shorter.
inline constexpr int64_t kChunkBytes = 64 * 1024;

/// A hash for each chunk of `tensor` (which fingerprint() takes). None for an empty tensor.
std::vector<Hash> chunk_hashes(const at::Tensor& tensor);

/// Order-dependent combination of hashes, to sum up a list of them.
Hash combine(Hash left, const Hash& right);
/// Of some text.
Hash hash_of(const std::string& text);

/// Where a plug-in puts the kernel of its device: called with tensors of that device only. An empty function takes it
/// away.
using DeviceFingerprint = std::vector<Fingerprint> (*)(at::TensorList tensors);
void set_device_fingerprint(c10::DeviceType device, DeviceFingerprint function);

}  // namespace lockstep::inspect
