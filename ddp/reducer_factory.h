// Makes a c10d::Reducer with the arguments that this LibTorch takes: the constructor gets more of them over time. In
// 2.11 the list of bucket caps is the last, 2.12 added batched_grad_copy, a later one lazy_bucket_allocation.
#pragma once
#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/distributed/c10d/debug.h>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "protocol/error.h"

namespace lockstep::ddp::detail {

struct ReducerArguments {
  std::vector<torch::Tensor> parameters;
  std::vector<std::vector<size_t>> buckets;
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  std::vector<bool> sparse;
  int64_t bucket_bytes_cap;
  bool find_unused_parameters;
  bool gradient_as_bucket_view;
  std::unordered_map<size_t, std::string> names;
  int64_t first_bucket_bytes_cap;
  bool skip_all_reduce_unused_params;
  std::vector<int64_t> bucket_bytes_cap_list;
  bool batched_grad_copy;
  bool lazy_bucket_allocation;
};

/// While it lives on a thread, the Reducer lays out its buckets below autograd there. With gradient_as_bucket_view the
/// gradients are then the buckets' memory, but not views to autograd: LibTorch's Optimizer::zero_grad() detaches
/// gradients in place, which autograd refuses for views.
using PlainBucketViews = at::AutoDispatchBelowADInplaceOrView;

/// The Reducer names parameters in its errors only if the debug level was not Off while it was constructed. While this
/// lives, the level is not Off.
class NamesInErrors {
 public:
  NamesInErrors() : lock_(mutex()), before_(c10d::debug_level()) {
    if (before_ == c10d::DebugLevel::Off) c10d::setDebugLevel(c10d::DebugLevel::Info);
  }
  ~NamesInErrors() { c10d::setDebugLevel(before_); }

 private:
  static std::mutex& mutex() {
    static std::mutex only;  // the level is the process's
    return only;
  }
  std::lock_guard<std::mutex> lock_;
  c10d::DebugLevel before_;
};

// This is a template, so that calls which this LibTorch does not have are not compiled.
template <class Reducer, class Arguments>
std::shared_ptr<Reducer> make_reducer(Arguments a) {
  constexpr bool kBatched =
      std::is_constructible_v<Reducer, std::vector<torch::Tensor>, std::vector<std::vector<size_t>>,
                              c10::intrusive_ptr<c10d::ProcessGroup>, std::vector<bool>, int64_t, bool, bool,
                              std::unordered_map<size_t, std::string>, int64_t, bool, bool, std::vector<int64_t>, bool>;
  constexpr bool kLazy = std::is_constructible_v<Reducer, std::vector<torch::Tensor>, std::vector<std::vector<size_t>>,
                                                 c10::intrusive_ptr<c10d::ProcessGroup>, std::vector<bool>, int64_t,
                                                 bool, bool, std::unordered_map<size_t, std::string>, int64_t, bool,
                                                 bool, std::vector<int64_t>, bool, bool>;
  if (a.batched_grad_copy && !kBatched) {
    throw ArgumentError("batched_grad_copy needs LibTorch 2.12 or newer; this is " TORCH_VERSION);
  }
  if (a.lazy_bucket_allocation && !kLazy) {
    throw ArgumentError("lazy_bucket_allocation needs a LibTorch newer than " TORCH_VERSION);
  }
  const NamesInErrors names_in_errors;
  const auto make = [&](auto... newer) {
    return std::make_shared<Reducer>(std::move(a.parameters), std::move(a.buckets), std::move(a.group),
                                     std::move(a.sparse), a.bucket_bytes_cap, a.find_unused_parameters,
                                     a.gradient_as_bucket_view, std::move(a.names), a.first_bucket_bytes_cap,
                                     a.skip_all_reduce_unused_params,
                                     /*use_python_reducer=*/false, std::move(a.bucket_bytes_cap_list), newer...);
  };
  if constexpr (kLazy) {
    return make(a.batched_grad_copy, a.lazy_bucket_allocation);
  } else if constexpr (kBatched) {
    return make(a.batched_grad_copy);
  } else {
    return make();
  }
}

}  // namespace lockstep::ddp::detail
