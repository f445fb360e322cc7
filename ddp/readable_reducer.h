// A c10d::Reducer whose buckets can be read at any time.
#pragma once
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include <mutex>
#include <vector>

namespace lockstep::ddp::detail {

/// Reducer::get_grad_buckets() of LibTorch 2.15 throws while a bucket has no memory. Such are the bucket of a sparse
/// gradient that this rank never had and, with lazy_bucket_allocation, every bucket outside of a step.
class ReadableReducer : public c10d::Reducer {
 public:
  using c10d::Reducer::Reducer;

  /// Returns the buckets in the order of reduction. A buffer can be undefined.
  std::vector<c10d::GradBucket> read_buckets() const {
    std::lock_guard lock(mutex_);
    std::vector<c10d::GradBucket> buckets;
    for (size_t i = 0; i < buckets_.size(); ++i) {
      const Bucket& bucket = buckets_[i];
      buckets.emplace_back(i, buckets_.size(), bucket.gradients, bucket.offsets, bucket.lengths, bucket.sizes_vec,
                           get_variables_for_bucket(i, bucket), bucket.sparse_tensor_indices);
    }
    return buckets;
  }

  /// Returns them with memory for buckets of dense gradients. Only the buffer of a sparse one can be undefined.
  std::vector<c10d::GradBucket> allocate_buckets() {
    {
      std::lock_guard lock(mutex_);
      for (auto& bucket : buckets_) allocate(*this, bucket);
    }
    return read_buckets();
  }

 private:
  // This is a template, so that versions without initialize_bucket_storage(), which always have the memory, compile.
  template <class Self, class AnyBucket>
  static void allocate(Self& self, AnyBucket& bucket) {
    if constexpr (requires { self.initialize_bucket_storage(bucket); }) {
      if (!bucket.gradients.defined() && !bucket.expect_sparse_gradient) self.initialize_bucket_storage(bucket);
    }
  }
};

}  // namespace lockstep::ddp::detail
