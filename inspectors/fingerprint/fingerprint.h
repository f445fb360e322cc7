// Fingerprints: 128 bits that are equal exactly if two tensors have the same bytes at the same indices (up to a chance
// of 2^-64), and statistics for messages: the numbers of NaN and Inf, the norm, the largest magnitude. One pass over
// memory. Neither the order in which threads finish nor the instruction set changes the result.
//
// Indices are logical: a transposed view has the fingerprint of its contiguous copy. Everything here is local.
#pragma once
#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <iosfwd>
#include <memory>
#include <vector>

namespace lockstep::inspect {

using Hash = std::array<uint64_t, 2>;

struct Fingerprint {
  Hash hash{};  // of bytes, indices, dtype and shape
  int64_t nan_count = 0;  // this and the next: of complex tensors, of real and imaginary parts
  int64_t inf_count = 0;
  double norm = 0;  // Euclidean, of finite elements
  double abs_max = 0;  // of finite elements (complex: the larger part); 0 for an empty tensor
  bool operator==(const Fingerprint&) const = default;
};

/// Prints "hash 00ff…, norm 3.25, largest magnitude 1.5, 0 NaN, 0 Inf".
std::ostream& operator<<(std::ostream& out, const Fingerprint& fingerprint);

/// Returns the fingerprints of `tensors`, in order: of any dtype and strides, also of empty ones; quantized and packed
/// dtypes have no statistics. Tensors on a GPU are read there when the plug-in for GPUs is installed
/// (inspectors/device/functions.h): all of one GPU in one launch on its current stream, which this call waits for.
/// Other tensors are copied to the CPU. Throws c10::Error for tensors without strided storage (undefined, meta,
/// sparse), naming the index.
std::vector<Fingerprint> fingerprint(at::TensorList tensors);
Fingerprint fingerprint(const at::Tensor& tensor);

/// Takes fingerprints while the host goes on: what is queued later on the current streams may overwrite the tensors or
/// free them. Tensors of devices without functions, and of the CPU, are read at once.
class QueuedFingerprints {
 public:
  /// Says where fingerprints of tensors on a device go: kHost queues their copy at once.
  enum class To { kHost, kStayOnDevice };

  /// Throws as fingerprint() does, and waits for no device that has functions. Local.
  explicit QueuedFingerprints(at::TensorList tensors, To to = To::kHost);
  QueuedFingerprints(QueuedFingerprints&&) noexcept;
  ~QueuedFingerprints();

  /// Waits until the devices are that far.
  std::vector<Fingerprint> read() const;

  /// Returns, with kStayOnDevice, one number from the hashes and indices of all tensors, which other tensors have by a
  /// chance of about 2^-50; int64 [2], on the first device with fingerprints, or on the CPU. Queued on current streams.
  at::Tensor content() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// A chunk, the unit of comparison, has so many bytes, in logical order; the last chunk may be shorter.
inline constexpr int64_t kChunkBytes = 64 * 1024;

/// Returns a hash for each chunk of `tensor`; none for an empty one. Supports the tensors of fingerprint().
std::vector<Hash> chunk_hashes(const at::Tensor& tensor);

/// Combines hashes for lists; the order counts.
Hash combine(Hash left, const Hash& right);
/// Returns the hash of a text.
Hash hash_of(const std::string& text);

}  // namespace lockstep::inspect
