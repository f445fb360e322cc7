#include "ddp/hooks/comm_hooks.h"

#include <torch/torch.h>

#include "ddp/hooks/default_group.h"

namespace lockstep::ddp {
namespace detail {

c10::intrusive_ptr<c10d::ProcessGroup> group_or_default(const c10::intrusive_ptr<c10d::ProcessGroup>& group) {
  return group ? group : default_group();
}

GradFuture mean_over_ranks(const c10::intrusive_ptr<c10d::ProcessGroup>& group, const torch::Tensor& tensor) {
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> tensors{tensor.div_(group->getSize())};
  return group->allreduce(tensors)->getFuture()->then(
      [](c10::ivalue::Future& done) { return c10::IValue(done.value().toTensorVector()[0]); }, c10::TensorType::get());
}

GradFuture completed(const torch::Tensor& value) {
  auto future = c10::make_intrusive<c10::ivalue::Future>(c10::TensorType::get());
  future->markCompleted(value);
  return future;
}

int64_t least_over_ranks(const c10::intrusive_ptr<c10d::ProcessGroup>& group, int64_t mine, torch::Device device) {
  std::vector<torch::Tensor> tensors{torch::full({1}, mine, torch::TensorOptions(device).dtype(torch::kLong))};
  c10d::AllreduceOptions options;
  options.reduceOp = c10d::ReduceOp::MIN;
  group->allreduce(tensors, options)->wait();
  return tensors[0].item<int64_t>();
}

}  // namespace detail

namespace {

using Group = c10::intrusive_ptr<c10d::ProcessGroup>;

// Copies the values of `sent` into `buffer`, which has the type that the Reducer expects.
GradFuture then_copy_into(const torch::Tensor& buffer, const GradFuture& sent) {
  return sent->then(
      [buffer](c10::ivalue::Future& done) {
        const torch::NoGradGuard no_grad;
        buffer.copy_(done.value().toTensor());
        return c10::IValue(buffer);
      },
      c10::TensorType::get());
}

// Sparse gradients go in full: LibTorch lacks some 16-bit arithmetic for them, and only the rows that were used are
// sent.
CommHook compress_hook(const char* name, torch::ScalarType type, Group group) {
  return CommHook(name, [type, group = std::move(group)](GradBucket& bucket) {
    const auto buffer = bucket.getBuffer();
    if (buffer.is_sparse()) return detail::mean_over_ranks(detail::group_or_default(group), buffer);
    return then_copy_into(buffer, detail::mean_over_ranks(detail::group_or_default(group), buffer.to(type)));
  });
}

CommHook compress_wrapper(const char* prefix, torch::ScalarType type, CommHook hook) {
  const auto run = [type, hook](GradBucket& bucket) {
    const auto buffer = bucket.getBuffer();
    if (buffer.is_sparse()) return hook.run(bucket);
    auto compressed = buffer.to(type);
    bucket.setBuffer(compressed);
    return then_copy_into(buffer, hook.run(bucket));
  };
  return CommHook(prefix + hook.name, run, hook.restart);
}

}  // namespace

CommHook allreduce_hook(Group group) {
  return CommHook("allreduce_hook", [group = std::move(group)](GradBucket& bucket) {
    return detail::mean_over_ranks(detail::group_or_default(group), bucket.getBuffer());
  });
}
CommHook fp16_compress_hook(Group group) { return compress_hook("fp16_compress_hook", torch::kHalf, std::move(group)); }
CommHook bf16_compress_hook(Group group) {
  return compress_hook("bf16_compress_hook", torch::kBFloat16, std::move(group));
}
CommHook fp16_compress_wrapper(CommHook hook) {
  return compress_wrapper("fp16_compress_wrapper of ", torch::kHalf, std::move(hook));
}
CommHook bf16_compress_wrapper(CommHook hook) {
  return compress_wrapper("bf16_compress_wrapper of ", torch::kBFloat16, std::move(hook));
}
CommHook noop_hook() {
  return CommHook("noop_hook", [](GradBucket& bucket) { return detail::completed(bucket.getBuffer()); });
}

}  // namespace lockstep::ddp
