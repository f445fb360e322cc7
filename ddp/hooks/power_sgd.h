// PowerSGD (Vogels, Karimireddy, Jaggi, NeurIPS 2019, arXiv 1905.13727): a gradient matrix M of n × m is sent as two
// factors, P of n × r and Q of r × m, found by one step of power iteration. The difference to M is added to the next
// gradient.
#pragma once
#include <torch/torch.h>

#include <cstdint>
#include <map>
#include <memory>

#include "ddp/hooks/comm_hooks.h"

namespace lockstep::ddp {

struct PowerSGDOptions {
  /// Ranks to reduce over. Empty: the default group.
  TORCH_ARG(c10::intrusive_ptr<c10d::ProcessGroup>, process_group) = {};
  /// r: rank of the factors. A greater one is more exact and sends more.
  TORCH_ARG(int64_t, matrix_approximation_rank) = 1;
  /// Steps that are reduced in full first. At least 2 with error feedback or warm start: the buckets change after the
  /// first.
  TORCH_ARG(int64_t, start_powerSGD_iter) = 1000;
  /// A matrix is compressed if (n + m) · r · min_compression_rate < n · m; others go in full.
  TORCH_ARG(double, min_compression_rate) = 2;
  /// Add the error of the last approximation to the gradient.
  TORCH_ARG(bool, use_error_feedback) = true;
  /// Begin the power iteration with the last step's Q.
  TORCH_ARG(bool, warm_start) = true;
  /// Added to norms, so that a column of zeros is not divided by zero.
  TORCH_ARG(double, orthogonalization_epsilon) = 0;
  /// Seed of Q's first values; must be the same on every rank.
  TORCH_ARG(uint64_t, random_seed) = 0;
  /// Compress matrices of one shape in a bucket in one batched product.
  TORCH_ARG(bool, batch_tensors_with_same_shape) = false;
};

/// Keeps what PowerSGD needs from step to step, on one rank. One for each wrapped module.
class PowerSGDState {
 public:
  /// Throws ArgumentError for options that do not fit together.
  explicit PowerSGDState(PowerSGDOptions options = {});

  const PowerSGDOptions& options() const { return options_; }
  /// Returns the steps so far. After a restart it is the smallest count of any rank: a failed step does not count.
  int64_t iter() const { return iter_; }
  /// Counts elements in the gradients of compressed steps, and those that they sent. Sparse gradients are not counted.
  struct CompressionStats {
    double rate;
    int64_t before, after;
  };
  CompressionStats compression_stats() const;

  /// Does the hook's work on one bucket. Collective.
  GradFuture reduce(GradBucket& bucket, bool as_one_square_matrix);
  /// Called when the wrapper starts afresh (CommHook::restart). Forgets what was kept of the buckets. With error
  /// feedback or warm start, two steps are reduced in full then, as at the start. Local.
  void restart();

 private:
  struct Memory {
    torch::Tensor error, p, q;
  };
  torch::Tensor compress(GradBucket& bucket, bool as_one_square_matrix);

  PowerSGDOptions options_;
  std::map<size_t, Memory> memory_;  // by bucket
  int64_t iter_ = 0;
  int64_t first_compressed_;  // iter_ from which on buckets are compressed
  bool restarted_ = false;  // ranks have yet to agree on iter_
  int64_t elements_before_ = 0, elements_after_ = 0;
};

/// Compresses each matrix of a bucket by itself; vectors and sparse gradients go in full.
CommHook powerSGD_hook(const std::shared_ptr<PowerSGDState>& state);
/// Takes the whole bucket as one square matrix: faster, less exact. Sparse gradients go in full.
CommHook batched_powerSGD_hook(const std::shared_ptr<PowerSGDState>& state);

namespace detail {
/// Makes the columns of each of `matrices` ([batch, n, r], r ≤ n) orthonormal, in place.
void orthogonalize(torch::Tensor matrices, double epsilon);
}  // namespace detail

}  // namespace lockstep::ddp
