#include "collectives/transport/staged_backend.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <utility>
#include <vector>

#include "collectives/transport/gloo_connector.h"
#include "collectives/transport/sigpipe.h"
#include "collectives/transport/staged_work.h"
#include "collectives/transport/streams.h"

namespace lockstep::dist {

using c10d::OpType;

namespace {

bool by_type_and_index(const c10::Device& a, const c10::Device& b) {
  return std::pair(a.type(), a.index()) < std::pair(b.type(), b.index());
}

}  // namespace

class StagedBackend : public c10d::Backend {
 public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;
  using TensorLists = std::vector<Tensors>;

  StagedBackend(c10::intrusive_ptr<c10d::Backend> host, std::shared_ptr<StagedWorks> works);
  ~StagedBackend() override;

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  WorkPtr allgather(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override;
  WorkPtr gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& options) override;
  WorkPtr scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& options) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& options) override;
  WorkPtr send(Tensors& tensors, int destination, int tag) override;
  WorkPtr recv(Tensors& tensors, int source, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;
  WorkPtr barrier(const c10d::BarrierOptions& options) override;
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override;

  const std::string getBackendName() const override { return host_->getBackendName(); }
  c10::intrusive_ptr<Options> getBackendOptions() override { return host_->getBackendOptions(); }
  void setTimeout(std::chrono::milliseconds timeout) override { host_->setTimeout(timeout); }

 private:
  class Staging;
  using Issue = std::function<WorkPtr(c10d::Backend&)>;
  struct Entry {
    c10::intrusive_ptr<StagedWork> work;
    EventPtr copied;  // when the inputs have arrived in host memory
    Issue issue;
  };

  c10::Stream side_stream(c10::Device device);
  void enqueue(Entry entry);
  void serve();

  const c10::intrusive_ptr<c10d::Backend> host_;
  const std::shared_ptr<StagedWorks> works_;
  std::map<c10::Device, c10::Stream, bool (*)(const c10::Device&, const c10::Device&)> streams_;
  std::mutex mutex_;  // of all below, and of streams_
  std::condition_variable changed_;
  std::deque<Entry> queue_;
  bool stopping_ = false;
  std::thread thread_;
};

/// Holds the host's tensors of one collective. Copies to the host are queued here; the destructor of a Staging that was
/// not run leaves nothing behind.
class StagedBackend::Staging {
 public:
  explicit Staging(StagedBackend& backend) : backend_(backend) {}

  /// Returns what Gloo reads in place of `tensor`.
  at::Tensor read(const at::Tensor& tensor) { return tensor.is_cpu() ? tensor : copied(tensor); }
  /// Returns what Gloo writes to.
  at::Tensor write(const at::Tensor& tensor) {
    const at::Tensor host = tensor.is_cpu() ? tensor : host_for(tensor);
    results_.emplace_back(tensor, host);
    return host;
  }
  /// Returns what Gloo reads and writes to.
  at::Tensor update(const at::Tensor& tensor) {
    const at::Tensor host = read(tensor);
    results_.emplace_back(tensor, host);
    return host;
  }
  Tensors read(const Tensors& tensors) { return all(tensors, &Staging::read); }
  Tensors write(const Tensors& tensors) { return all(tensors, &Staging::write); }
  Tensors update(const Tensors& tensors) { return all(tensors, &Staging::update); }
  TensorLists read(const TensorLists& lists) {
    TensorLists result;
    for (const Tensors& each : lists) result.push_back(read(each));
    return result;
  }
  TensorLists write(const TensorLists& lists) {
    TensorLists result;
    for (const Tensors& each : lists) result.push_back(write(each));
    return result;
  }

  WorkPtr run(OpType type, Issue issue) {
    Entry entry;
    entry.issue = std::move(issue);
    if (reads_) {
      entry.copied = record_event(*stream_);
    }
    entry.work = c10::make_intrusive<StagedWork>(type, backend_.works_, stream_, std::move(results_));
    const WorkPtr work = entry.work;
    backend_.enqueue(std::move(entry));
    return work;
  }

 private:
  Tensors all(const Tensors& tensors, at::Tensor (Staging::*each)(const at::Tensor&)) {
    Tensors result;
    for (const at::Tensor& tensor : tensors) result.push_back((this->*each)(tensor));
    return result;
  }

  at::Tensor host_for(const at::Tensor& tensor) {
    TORCH_CHECK(tensor.layout() == at::kStrided, "Gloo through host memory takes strided tensors, this one is ",
                tensor.layout());
    use(tensor.device());
    const c10::StreamGuard guard(*stream_);
    record_use_on_current_stream(tensor);
    return at::empty(tensor.sizes(),
                     tensor.options().device(at::kCPU).pinned_memory(true).requires_grad(false).memory_format(
                         at::MemoryFormat::Contiguous));
  }

  at::Tensor copied(const at::Tensor& tensor) {
    at::Tensor host = host_for(tensor);
    const BelowAutograd below;
    const c10::StreamGuard guard(*stream_);
    host.copy_(tensor, /*non_blocking=*/true);
    reads_ = true;
    return host;
  }

  /// The side stream goes on when the caller's current stream has come here: inputs are written by then, and earlier
  /// readers of outputs are done.
  void use(c10::Device device) {
    if (stream_) {
      TORCH_CHECK(stream_->device() == device, "the tensors of one collective are on ", stream_->device(), " and ",
                  device);
      return;
    }
    stream_ = backend_.side_stream(device);
    c10::Event here(device.type());
    here.record(current_stream_of(device));
    here.block(*stream_);
  }

  StagedBackend& backend_;
  std::optional<c10::Stream> stream_;
  bool reads_ = false;
  StagedWork::Copies results_;
};

StagedBackend::StagedBackend(c10::intrusive_ptr<c10d::Backend> host, std::shared_ptr<StagedWorks> works)
    : c10d::Backend(host->getRank(), host->getSize()),
      host_(std::move(host)),
      works_(std::move(works)),
      streams_(by_type_and_index) {
  init();
  thread_ = std::thread([this] { serve(); });
}

StagedBackend::~StagedBackend() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

c10::Stream StagedBackend::side_stream(c10::Device device) {
  const std::lock_guard lock(mutex_);
  auto found = streams_.find(device);
  if (found == streams_.end())
    found =
        streams_
            .emplace(device,
                     c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device, /*high priority*/ true))
            .first;
  return found->second;
}

void StagedBackend::enqueue(Entry entry) {
  if (!works_->add(entry.work)) return;
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(entry));
  }
  changed_.notify_all();
}

void StagedBackend::serve() {
  const SigpipeBlocked quiet;  // point to point, Gloo writes on this thread
  for (;;) {
    Entry entry;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
      if (queue_.empty()) return;
      entry = std::move(queue_.front());
      queue_.pop_front();
    }
    try {
      if (entry.copied) entry.copied->synchronize();
      // An interrupted one is left out: its peers are interrupted by Gloo's closed connections.
      if (entry.work->exception()) continue;
      entry.work->issued(entry.issue(*host_));
    } catch (...) {  // for all who wait for it
      entry.work->fail(std::current_exception());
    }
  }
}

StagedBackend::WorkPtr StagedBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  Staging staging(*this);
  Tensors host = staging.update(tensors);
  return staging.run(OpType::BROADCAST,
                     [host, options](Backend& gloo) mutable { return gloo.broadcast(host, options); });
}

StagedBackend::WorkPtr StagedBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  Staging staging(*this);
  Tensors host = staging.update(tensors);
  return staging.run(OpType::ALLREDUCE,
                     [host, options](Backend& gloo) mutable { return gloo.allreduce(host, options); });
}

StagedBackend::WorkPtr StagedBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  Staging staging(*this);
  Tensors host = options.rootRank == getRank() ? staging.update(tensors) : staging.read(tensors);
  return staging.run(OpType::REDUCE, [host, options](Backend& gloo) mutable { return gloo.reduce(host, options); });
}

StagedBackend::WorkPtr StagedBackend::allgather(TensorLists& outputs, Tensors& inputs,
                                                const c10d::AllgatherOptions& options) {
  Staging staging(*this);
  Tensors read = staging.read(inputs);
  TensorLists written = staging.write(outputs);
  return staging.run(OpType::ALLGATHER, [read, written, options](Backend& gloo) mutable {
    return gloo.allgather(written, read, options);
  });
}

StagedBackend::WorkPtr StagedBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                      const c10d::AllgatherOptions& options) {
  Staging staging(*this);
  at::Tensor read = staging.read(input), written = staging.write(output);
  return staging.run(OpType::_ALLGATHER_BASE, [read, written, options](Backend& gloo) mutable {
    return gloo._allgather_base(written, read, options);
  });
}

StagedBackend::WorkPtr StagedBackend::gather(TensorLists& outputs, Tensors& inputs,
                                             const c10d::GatherOptions& options) {
  Staging staging(*this);
  Tensors read = staging.read(inputs);
  TensorLists written = staging.write(outputs);
  return staging.run(OpType::GATHER,
                     [read, written, options](Backend& gloo) mutable { return gloo.gather(written, read, options); });
}

StagedBackend::WorkPtr StagedBackend::scatter(Tensors& outputs, TensorLists& inputs,
                                              const c10d::ScatterOptions& options) {
  Staging staging(*this);
  TensorLists read = staging.read(inputs);
  Tensors written = staging.write(outputs);
  return staging.run(OpType::SCATTER,
                     [read, written, options](Backend& gloo) mutable { return gloo.scatter(written, read, options); });
}

StagedBackend::WorkPtr StagedBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                    std::vector<int64_t>& output_splits,
                                                    std::vector<int64_t>& input_splits,
                                                    const c10d::AllToAllOptions& options) {
  Staging staging(*this);
  at::Tensor read = staging.read(input), written = staging.write(output);
  return staging.run(OpType::ALLTOALL_BASE,
                     [read, written, output_splits, input_splits, options](Backend& gloo) mutable {
                       return gloo.alltoall_base(written, read, output_splits, input_splits, options);
                     });
}

StagedBackend::WorkPtr StagedBackend::send(Tensors& tensors, int destination, int tag) {
  Staging staging(*this);
  Tensors host = staging.read(tensors);
  return staging.run(OpType::SEND,
                     [host, destination, tag](Backend& gloo) mutable { return gloo.send(host, destination, tag); });
}

StagedBackend::WorkPtr StagedBackend::recv(Tensors& tensors, int source, int tag) {
  Staging staging(*this);
  Tensors host = staging.write(tensors);
  return staging.run(OpType::RECV, [host, source, tag](Backend& gloo) mutable { return gloo.recv(host, source, tag); });
}

StagedBackend::WorkPtr StagedBackend::recvAnysource(Tensors& tensors, int tag) {
  Staging staging(*this);
  Tensors host = staging.write(tensors);
  return staging.run(OpType::RECVANYSOURCE,
                     [host, tag](Backend& gloo) mutable { return gloo.recvAnysource(host, tag); });
}

StagedBackend::WorkPtr StagedBackend::barrier(const c10d::BarrierOptions& options) {
  return Staging(*this).run(OpType::BARRIER, [options](Backend& gloo) { return gloo.barrier(options); });
}

void StagedBackend::monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) {
  Staging(*this)
      .run(OpType::BARRIER,
           [options, wait_all_ranks](Backend& gloo) {
             gloo.monitoredBarrier(options, wait_all_ranks);
             return WorkPtr();
           })
      ->wait();
}

namespace {

class StagedConnector : public BackendConnector {
 public:
  explicit StagedConnector(const GroupDescription& group) : gloo_(make_gloo_connector(group)) {}

  std::string announcement() override { return gloo_->announcement(); }
  c10::intrusive_ptr<c10d::Backend> connect(const c10::intrusive_ptr<c10d::Store>& store,
                                            const std::vector<std::string>& peers,
                                            std::chrono::milliseconds connect_timeout) override {
    return c10::make_intrusive<StagedBackend>(gloo_->connect(store, peers, connect_timeout), works_);
  }
  void interrupt() noexcept override {
    gloo_->interrupt();
    works_->interrupt();
  }
  bool lost_writes() const noexcept override { return gloo_->lost_writes(); }
  bool lost_connection() const noexcept override { return gloo_->lost_connection(); }
  bool is_transport_error(const std::exception_ptr& error) const noexcept override {
    try {
      std::rethrow_exception(error);
    } catch (const StagedError&) {
      return true;
    } catch (...) {  // Gloo's
      return gloo_->is_transport_error(error);
    }
  }

 private:
  const std::unique_ptr<BackendConnector> gloo_;
  const std::shared_ptr<StagedWorks> works_ = std::make_shared<StagedWorks>();
};

}  // namespace

std::unique_ptr<BackendConnector> make_staged_gloo_connector(const GroupDescription& group) {
  return std::make_unique<StagedConnector>(group);
}

}  // namespace lockstep::dist
