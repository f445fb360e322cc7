#include "collectives/transport/shared_memory/shared_memory_backend.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <utility>
#include <vector>

#include "collectives/transport/shared_memory/call_queue.h"
#include "collectives/transport/shared_memory/shared_exchange.h"

namespace lockstep::dist {

using c10d::OpType;

namespace {
/// Throws for what the watched backend never passes: it makes tensors contiguous.
void check_plain(const at::Tensor& tensor) {
  TORCH_CHECK(tensor.layout() == at::kStrided && tensor.is_cpu() && tensor.is_contiguous(),
              "shared memory takes contiguous tensors of the CPU");
}

std::vector<void*> addresses(const std::vector<at::Tensor>& tensors) {
  std::vector<void*> result;
  for (const at::Tensor& tensor : tensors) {
    check_plain(tensor);
    result.push_back(tensor.data_ptr());
  }
  return result;
}
}  // namespace

class SharedMemoryBackend : public c10d::Backend {
 public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;
  using TensorLists = std::vector<Tensors>;

  SharedMemoryBackend(c10::intrusive_ptr<c10d::Backend> gloo, std::shared_ptr<SharedRegion> region,
                      const GroupDescription& group)
      : c10d::Backend(gloo->getRank(), gloo->getSize()),
        gloo_(std::move(gloo)),
        region_(std::move(region)),
        exchange_(region_),
        log_(group.log),
        timeout_(group.timeout) {
    init();
  }
  // A call that still runs must not wait for peers any longer. They learn from the connector that this rank has left.
  ~SharedMemoryBackend() override {
    queue_->close([&] { region_->end_own_waits(); });
  }

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    if (tensors.size() != 1) return gloo_->broadcast(tensors, options);
    void* const data = addresses(tensors)[0];
    return add(OpType::BROADCAST, options, tensors, [=, this, bytes = tensors[0].nbytes()](Deadline deadline) {
      exchange_.broadcast(data, bytes, static_cast<int>(options.rootRank), deadline);
    });
  }

  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    const at::Tensor& first = tensors.at(0);
    if (tensors.size() != 1 || first.layout() != at::kStrided ||
        !SharedExchange::reduces(first.scalar_type(), options.reduceOp.op_))
      return gloo_->allreduce(tensors, options);
    void* const data = addresses(tensors)[0];
    return add(OpType::ALLREDUCE, options, tensors,
               [this, data, count = first.numel(), type = first.scalar_type(), op = options.reduceOp.op_](
                   Deadline deadline) { exchange_.all_reduce(data, count, type, op, deadline); });
  }

  WorkPtr allgather(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override {
    if (inputs.size() != 1) return gloo_->allgather(outputs, inputs, options);
    const void* const input = addresses(inputs)[0];
    return add(OpType::ALLGATHER, options, outputs.at(0),
               [this, to = addresses(outputs.at(0)), kept = inputs, input](Deadline deadline) {
                 exchange_.all_gather(to, input, kept[0].nbytes(), deadline);
               });
  }

  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override {
    const Tensors parts = parts_of(output);
    return add(OpType::_ALLGATHER_BASE, options, {output},
               [this, to = addresses(parts), input, from = addresses({input})[0]](Deadline deadline) {
                 exchange_.all_gather(to, from, input.nbytes(), deadline);
               });
  }

  WorkPtr gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& options) override {
    const Tensors results = outputs.empty() ? Tensors() : outputs[0];
    return add(OpType::GATHER, options, results,
               [this, to = addresses(results), kept = inputs, input = addresses(inputs).at(0),
                root = static_cast<int>(options.rootRank)](Deadline deadline) {
                 exchange_.gather(to, input, kept[0].nbytes(), root, deadline);
               });
  }

  WorkPtr reduce_scatter(Tensors& outputs, TensorLists& inputs, const c10d::ReduceScatterOptions& options) override {
    if (outputs.size() != 1 || !SharedExchange::reduces(outputs[0].scalar_type(), options.reduceOp.op_))
      return gloo_->reduce_scatter(outputs, inputs, options);
    return add(OpType::REDUCE_SCATTER, options, outputs, reduction_of_parts(outputs[0], inputs.at(0), options));
  }

  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override {
    if (!SharedExchange::reduces(output.scalar_type(), options.reduceOp.op_))
      return gloo_->_reduce_scatter_base(output, input, options);
    return add(OpType::_REDUCE_SCATTER_BASE, options, {output}, reduction_of_parts(output, parts_of(input), options));
  }

  WorkPtr barrier(const c10d::BarrierOptions& options) override {
    return add(OpType::BARRIER, options, {}, [this](Deadline deadline) { exchange_.barrier(deadline); });
  }

  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override {
    return gloo_->reduce(tensors, options);
  }
  WorkPtr scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& options) override {
    return gloo_->scatter(outputs, inputs, options);
  }
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& options) override {
    return gloo_->alltoall_base(output, input, output_splits, input_splits, options);
  }
  WorkPtr send(Tensors& tensors, int destination, int tag) override { return gloo_->send(tensors, destination, tag); }
  WorkPtr recv(Tensors& tensors, int source, int tag) override { return gloo_->recv(tensors, source, tag); }
  WorkPtr recvAnysource(Tensors& tensors, int tag) override { return gloo_->recvAnysource(tensors, tag); }
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override {
    gloo_->monitoredBarrier(options, wait_all_ranks);
  }

  const std::string getBackendName() const override { return "shared_memory"; }
  c10::intrusive_ptr<Options> getBackendOptions() override { return gloo_->getBackendOptions(); }
  void setTimeout(std::chrono::milliseconds timeout) override {
    timeout_ = timeout;
    gloo_->setTimeout(timeout);
  }

 private:
  using Deadline = SharedRegion::Deadline;

  /// `run` may hold addresses in `results`, which the work keeps.
  template <typename Options, typename Run>
  WorkPtr add(OpType type, const Options& options, Tensors results, Run run) {
    constexpr std::chrono::milliseconds kLongest = std::chrono::hours(24 * 365);  // a deadline must not overflow
    const std::chrono::milliseconds limit =
        std::min(options.timeout == c10d::kUnsetTimeout ? timeout_.load() : options.timeout, kLongest);
    const int64_t seq = log_ ? log_->last_entered.load() : 0;  // this call is the last that was entered
    auto work =
        c10::make_intrusive<QueuedWork>(type, queue_, std::move(results), [this, limit, seq, run = std::move(run)] {
          exchange_.set_seq(seq);
          run(std::chrono::steady_clock::now() + limit);
        });
    queue_->add(work, /*waits_at_once=*/!options.asyncOp);
    return work;
  }

  /// Views one part for each rank.
  Tensors parts_of(const at::Tensor& tensor) const {
    check_plain(tensor);
    return tensor.view({getSize(), -1}).unbind();
  }

  std::function<void(Deadline)> reduction_of_parts(const at::Tensor& output, const Tensors& inputs,
                                                   const c10d::ReduceScatterOptions& options) {
    const std::vector<void*> from = addresses(inputs);
    return [this, to = addresses({output})[0], inputs, from = std::vector<const void*>(from.begin(), from.end()),
            count = output.numel(), type = output.scalar_type(), op = options.reduceOp.op_](Deadline deadline) {
      exchange_.reduce_scatter(to, from, count, type, op, deadline);
    };
  }

  const c10::intrusive_ptr<c10d::Backend> gloo_;
  const std::shared_ptr<SharedRegion> region_;
  SharedExchange exchange_;  // of whoever runs the first of the queue
  const std::shared_ptr<log_layout::Group> log_;
  const std::shared_ptr<CallQueue> queue_ = std::make_shared<CallQueue>();
  std::atomic<std::chrono::milliseconds> timeout_;
};

c10::intrusive_ptr<c10d::Backend> make_shared_memory_backend(c10::intrusive_ptr<c10d::Backend> gloo,
                                                             std::shared_ptr<SharedRegion> region,
                                                             const GroupDescription& group) {
  return c10::make_intrusive<SharedMemoryBackend>(std::move(gloo), std::move(region), group);
}

}  // namespace lockstep::dist
