// Normalises batches with the statistics of the whole batch over all ranks, in forward and backward, on any device.
// LibTorch lacks it.
//
//   ddp::SyncBatchNorm norm(64);                     // where a torch::nn::BatchNorm2d(64) would stand
//   ddp::convert_sync_batchnorm(*net);               // or: for all BatchNorms of a module
//   auto trained = ddp::DistributedDataParallel(net);
#pragma once
#include <torch/torch.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <memory>

namespace lockstep::ddp {

/// Normalises [N, C, …] (any number of further dimensions) per channel with mean and variance over all N and further
/// dimensions of all ranks of `group`. Ranks may have different N, none included. Collective: an all_gather of 2·C + 1
/// doubles in forward, an all_reduce of 2·C in backward. `weight`, `bias`, `running_mean`, `running_var` may be
/// undefined; running statistics are updated in place with `momentum` (the variance unbiased over all ranks). Throws
/// ArgumentError for fewer than two dimensions, or fewer than two values per channel over all ranks.
torch::Tensor sync_batch_norm(const torch::Tensor& input, const torch::Tensor& weight, const torch::Tensor& bias,
                              const torch::Tensor& running_mean, const torch::Tensor& running_var, double momentum,
                              double eps, const c10::intrusive_ptr<c10d::ProcessGroup>& group);

/// torch::nn::BatchNorm over all ranks: its options, names of parameters and buffers, and archive. In eval mode it is
/// BatchNorm, and local: without running statistics it takes those of this rank's batch.
class SyncBatchNormImpl : public torch::nn::Cloneable<SyncBatchNormImpl> {
 public:
  /// Without a group it takes the default group, looked up at each forward in training.
  explicit SyncBatchNormImpl(const torch::nn::BatchNormOptions& options,
                             c10::intrusive_ptr<c10d::ProcessGroup> group = {});
  explicit SyncBatchNormImpl(int64_t num_features) : SyncBatchNormImpl(torch::nn::BatchNormOptions(num_features)) {}
  void reset() override;
  void pretty_print(std::ostream& stream) const override;
  torch::Tensor forward(const torch::Tensor& input);

  torch::nn::BatchNormOptions options;
  torch::Tensor weight, bias, running_mean, running_var, num_batches_tracked;

 private:
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
};
TORCH_MODULE(SyncBatchNorm);

/// From now on BatchNorm1d, 2d and 3d modules within `module` take the statistics of all ranks whenever they are
/// trained in a forward of a DistributedDataParallel wrapper. The modules, their members, parameters and archives stay
/// as they are; local. Returns how many there are. Call it on every rank, before wrapping or after. Throws
/// ArgumentError for one that has neither weights nor running statistics.
int convert_sync_batchnorm(torch::nn::Module& module, c10::intrusive_ptr<c10d::ProcessGroup> group = {});

namespace detail {

/// Whether some BatchNorm in `module` was converted.
bool has_converted_batchnorm(const torch::nn::Module& module);
/// Returns the calls of convert_sync_batchnorm in this process. has_converted_batchnorm() changes only with them.
int64_t batchnorm_conversions();

/// While it lives, converted BatchNorms on this thread are synchronised.
class SyncBatchNormScope {
 public:
  SyncBatchNormScope();
  ~SyncBatchNormScope();
  SyncBatchNormScope(const SyncBatchNormScope&) = delete;
  SyncBatchNormScope& operator=(const SyncBatchNormScope&) = delete;

 private:
  bool before_;
};

}  // namespace detail
}  // namespace lockstep::ddp
