// What the watched backend costs: the same call on a backend that does nothing, bare and decorated; with peers whose signatures
// are compared; and as dist::all_reduce, from the arguments' checks to the end of the wait.
#include <benchmark/benchmark.h>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "collectives/dist.h"
#include "collectives/watch/watched_backend.h"

namespace lockstep::dist {
namespace {

class NoWork : public c10d::Work {
 public:
  NoWork() : future_(c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()))) {
    future_->markCompleted(c10::IValue(std::vector<at::Tensor>{}));
  }
  bool isCompleted() override { return true; }
  bool isSuccess() const override { return true; }
  bool wait(std::chrono::milliseconds) override { return true; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }

 private:
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

class NoBackend : public c10d::Backend {
 public:
  explicit NoBackend(int size) : c10d::Backend(0, size), work_(c10::make_intrusive<NoWork>()) {}
  const std::string getBackendName() const override { return "none"; }
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>&, const c10d::AllreduceOptions&) override {
    return work_;
  }

 private:
  c10::intrusive_ptr<c10d::Work> work_;
};

// A watched group without connections. Its peers are other mappings of its own log, so that each has come and agrees.
c10::intrusive_ptr<WatchedBackend> watched(int peers) {
  auto log = std::make_shared<CollectiveLog>("", 0, peers + 1);
  WatchedGroup::Identity identity{.name = "default", .group_rank = 0, .backend = "none", .timeout = kDefaultTimeout};
  for (int rank = 0; rank <= peers; ++rank) identity.ranks.push_back(rank);
  const auto group = std::make_shared<WatchedGroup>(
      std::move(identity), log, std::make_shared<HangWatch>(log->mapping()), std::make_shared<AbortFlag>(), true);
  std::vector<PeerInGroup> others;
  for (int rank = 1; rank <= peers; ++rank) {
    auto mapping = std::make_shared<const LogMapping>(LogMapping::open(log->mapping().shared_path()));
    others.push_back({{.rank = rank, .same_machine = true, .log = std::move(mapping)}, rank, group->slot()});
  }
  group->connected(std::move(others), 0, 0);
  auto backend = c10::make_intrusive<WatchedBackend>(group);
  backend->set_transport(c10::make_intrusive<NoBackend>(peers + 1));
  return backend;
}

void call(benchmark::State& state, c10d::Backend& backend, bool async) {
  std::vector<at::Tensor> tensors{at::zeros({2})};
  c10d::AllreduceOptions options;
  options.asyncOp = async;
  for (auto _ : state) {
    auto work = backend.allreduce(tensors, options);
    benchmark::DoNotOptimize(work->wait());
  }
}

void bare(benchmark::State& state) {
  const auto backend = c10::make_intrusive<NoBackend>(1);
  call(state, *backend, false);
}
BENCHMARK(bare);

void logged(benchmark::State& state) { call(state, *watched(0), false); }
BENCHMARK(logged);

void logged_async(benchmark::State& state) { call(state, *watched(0), true); }
BENCHMARK(logged_async);

void logged_and_compared(benchmark::State& state) { call(state, *watched(static_cast<int>(state.range(0))), false); }
BENCHMARK(logged_and_compared)->ArgName("peers")->Arg(1)->Arg(3)->Arg(7);

void read_last_100(benchmark::State& state) {
  const auto backend = watched(0);
  std::vector<at::Tensor> tensors{at::zeros({2})};
  for (int i = 0; i < 10'000; ++i) backend->allreduce(tensors, {})->wait();
  const LogMapping log = LogMapping::open(backend->group()->log_path());
  for (auto _ : state) benchmark::DoNotOptimize(CollectiveLogReader(log).last(100));
}
BENCHMARK(read_last_100);

}  // namespace
}  // namespace lockstep::dist
