// A launch plan is what a launch needs beside the kernel: a table that goes to the device in one copy (records of the
// tensors, which chunk belongs to which, tickets, the output with what is known already), and scratch memory. No CUDA
// in here: tests make the same table in host memory.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "cuda/bodies/fingerprint.h"
#include "cuda/bodies/records.h"
#include "cuda/bodies/sentinel.h"

namespace lockstep::cuda {

class LaunchPlan {
 public:
  enum class Purpose { fingerprint, sentinel };

  /// Takes tensors of one device, of any dtype and any strides, and keeps them. Lazily conjugated and negated ones, and
  /// those of more than 8 dimensions that do not lie as one, are replaced by copies on their device. Throws c10::Error
  /// for tensors without strided storage, naming the index.
  LaunchPlan(at::TensorList tensors, Purpose purpose);

  size_t tensors() const { return records_.size(); }
  /// Returns the size of the grid; 0: nothing to launch.
  uint32_t blocks() const { return chunks_; }
  size_t table_bytes() const { return table_bytes_; }
  size_t scratch_bytes() const;
  /// Writes table_bytes() to `table` (aligned to 16).
  void write_table(uint8_t* table) const;

  /// `table` and `scratch` are where the kernel finds them.
  FingerprintLaunch fingerprint_launch(uint8_t* table, uint8_t* scratch) const;
  SentinelLaunch sentinel_launch(uint8_t* table) const;

  /// Returns where the output lies in the table: tensors() × FingerprintRecord, or the sentinel's flag.
  size_t output_offset() const { return output_; }

 private:
  void add(const at::Tensor& tensor, size_t index);

  Purpose purpose_;
  std::vector<at::Tensor> kept_;
  std::vector<TensorRecord> records_;
  std::vector<Strides> strides_;
  uint32_t chunks_ = 0, groups_ = 0;
  // These are offsets into the table.
  size_t tensor_of_chunk_ = 0, strides_offset_ = 0, keys_ = 0, group_tickets_ = 0, tensor_tickets_ = 0, output_ = 0;
  size_t table_bytes_ = 0;
};

}  // namespace lockstep::cuda
