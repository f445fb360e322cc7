// DistributedDataParallel for modules of the C++ front end: every rank trains a replica on its own share of the batch.
// In backward, gradients become their mean over all ranks, bucket by bucket, so replicas stay bit-equal. Built on
// c10d::Reducer, as PyTorch's Python class is, with the same options (docs/ddp.md).
//
//   auto net = ddp::DistributedDataParallel(Net(), ddp::Options().gradient_as_bucket_view(true));
//   torch::optim::SGD optimizer(net.parameters(), 0.1);
//   torch::nll_loss(net(images), labels).backward();
//   optimizer.step();
//   net.zero_grad();
#pragma once
#include <concepts>
#include <memory>
#include <utility>

#include "ddp/distributed_module.h"
#include "protocol/error.h"

namespace lockstep::ddp {

template <class H>
concept IsModuleHolder = requires(const H& holder) {
  typename H::ContainedType;
  { holder.ptr() } -> std::convertible_to<std::shared_ptr<typename H::ContainedType>>;
};

/// Wraps a module M. All ranks of the group construct it together (unless init_sync is off) and call forward together.
/// Throws ddp::ArgumentError, on every rank alike, if options or modules do not fit.
template <class M>
class DistributedDataParallel : public DistributedModule {
 public:
  explicit DistributedDataParallel(std::shared_ptr<M> module, Options options = Options())
      : DistributedModule(module, std::move(options)), replica_(std::move(module)) {}
  explicit DistributedDataParallel(M module, Options options = Options())
      : DistributedDataParallel(std::make_shared<M>(std::move(module)), std::move(options)) {}
  template <IsModuleHolder H>
    requires std::same_as<typename H::ContainedType, M>
  explicit DistributedDataParallel(const H& holder, Options options = Options())
      : DistributedDataParallel(holder.ptr(), std::move(options)) {}
  DistributedDataParallel(const DistributedDataParallel&) = default;  // no moves, as in DistributedModule
  DistributedDataParallel& operator=(const DistributedDataParallel&) = default;

  /// Calls the module's forward, with its arguments and its result. Output tensors are found in optionals, tuples,
  /// vectors, maps, variants and structs with a function tensors_of (ddp/step/tensor_tree.h).
  template <class... A>
  auto forward(A&&... inputs) const {
    return detail::forward_through(
        *this, [&](auto&&... moved) { return replica_->forward(std::forward<decltype(moved)>(moved)...); },
        std::forward<A>(inputs)...);
  }
  template <class... A>
  auto operator()(A&&... inputs) const {
    return forward(std::forward<A>(inputs)...);
  }
  /// Calls a forward that has its result type as a template parameter, as that of Sequential.
  template <class Result, class... A>
  Result forward_as(A&&... inputs) const {
    return detail::forward_through(
        *this,
        [&](auto&&... moved) { return replica_->template forward<Result>(std::forward<decltype(moved)>(moved)...); },
        std::forward<A>(inputs)...);
  }

  M* operator->() const { return replica_.get(); }
  M& operator*() const { return *replica_; }
  const std::shared_ptr<M>& ptr() const { return replica_; }

 private:
  std::shared_ptr<M> replica_;
};

/// An AnyModule has forward, which returns a tensor, and forward_as<R>, which returns anything.
template <>
class DistributedDataParallel<torch::nn::AnyModule> : public DistributedModule {
 public:
  explicit DistributedDataParallel(torch::nn::AnyModule any, Options options = Options())
      : DistributedModule(any.ptr(), std::move(options)), any_(std::move(any)) {}
  DistributedDataParallel(const DistributedDataParallel&) = default;
  DistributedDataParallel& operator=(const DistributedDataParallel&) = default;

  template <class Result, class... A>
  Result forward_as(A&&... inputs) const {
    return detail::forward_through(
        *this, [&](auto&&... moved) { return any_.template forward<Result>(std::forward<decltype(moved)>(moved)...); },
        std::forward<A>(inputs)...);
  }
  template <class... A>
  torch::Tensor forward(A&&... inputs) const {
    return forward_as<torch::Tensor>(std::forward<A>(inputs)...);
  }
  template <class... A>
  torch::Tensor operator()(A&&... inputs) const {
    return forward(std::forward<A>(inputs)...);
  }
  torch::nn::Module* operator->() const { return module().get(); }

 private:
  mutable torch::nn::AnyModule any_;
};

template <class M>
DistributedDataParallel(std::shared_ptr<M>, Options = Options()) -> DistributedDataParallel<M>;
template <class M>
  requires std::derived_from<M, torch::nn::Module>
DistributedDataParallel(M, Options = Options()) -> DistributedDataParallel<M>;
template <IsModuleHolder H>
DistributedDataParallel(H, Options = Options()) -> DistributedDataParallel<typename H::ContainedType>;
DistributedDataParallel(torch::nn::AnyModule, Options = Options()) -> DistributedDataParallel<torch::nn::AnyModule>;

}  // namespace lockstep::ddp
