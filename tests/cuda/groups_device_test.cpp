// Process groups with tensors on a device: NCCL with one rank, aborts of what is stuck there, and Gloo with two ranks
// that share the device. Skipped where there is no GPU.
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <torch/cuda.h>
#include <torch/torch.h>

#include <atomic>
#include <future>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "collectives/dist.h"
#include "collectives/rank_context.h"
#include "collectives/session_group.h"
#include "collectives/transport/backend_factory.h"
#include "collectives/watch/device_queries.h"
#include "lockstep/ddp.h"
#include "tests/collectives/stuck_ranks.h"
#include "tests/cuda/spin.h"
#include "tests/support/spawn_ranks.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::run_as_processes;
using testing::spawn_ranks;

constexpr const char* kMixed = "cpu:gloo,cuda:nccl";

class DeviceGroups : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!::dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL) || !torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
    ASSERT_TRUE(dist::has_backend("nccl")) << "the plug-in has no NCCL, or can't be loaded";
  }
};

/// Keeps the current stream from going on while it lives.
class Spin {
 public:
  Spin() {
    C10_CUDA_CHECK(cudaMallocHost(reinterpret_cast<void**>(&flag_), sizeof(int)));
    *flag_ = 0;
    C10_CUDA_CHECK(cuda::spin_until(flag_, c10::cuda::getCurrentCUDAStream().stream()));
  }
  ~Spin() {
    release();
    C10_CUDA_CHECK(cudaDeviceSynchronize());
    C10_CUDA_CHECK(cudaFreeHost(flag_));
  }
  void release() { *const_cast<volatile int*>(flag_) = 1; }

 private:
  int* flag_ = nullptr;
};

TEST_F(DeviceGroups, EveryCollectiveOfOneRankOnNccl) {
  spawn_ranks(1,
              [](int, int) {
                const auto cuda = at::TensorOptions().device(at::kCUDA);
                at::Tensor t = at::arange(6, cuda.dtype(at::kFloat));
                const at::Tensor expected = t.clone();
                dist::all_reduce(t);
                dist::broadcast(t, 0);
                dist::reduce(t, 0);
                dist::all_reduce(t, dist::ReduceOp::AVG);
                EXPECT_TRUE(dist::all_gather(t)[0].equal(expected));
                at::Tensor out = at::empty_like(t);
                dist::all_gather_into_tensor(out, t);
                dist::reduce_scatter_tensor(out, t);
                dist::all_to_all_single(out, t);
                EXPECT_TRUE(out.equal(expected));
                EXPECT_TRUE(dist::gather(t)[0].equal(expected));
                dist::scatter(out, {t});
                dist::all_reduce_coalesced({t, out});
                dist::all_gather_into_tensor_coalesced({out}, {t});
                dist::reduce_scatter_tensor_coalesced({out}, {t});
                dist::all_gather_coalesced({{out}}, {t});
                EXPECT_TRUE(out.equal(expected));
                at::Tensor columns = at::arange(6, cuda).view({2, 3}).t();  // not contiguous: by way of a copy
                dist::all_reduce(columns);
                EXPECT_TRUE(columns.cpu().equal(at::arange(6).view({2, 3}).t()));
                at::Tensor z = at::complex(expected, expected);
                dist::all_reduce(z);
                EXPECT_TRUE(z.equal(at::complex(expected, expected)));
                EXPECT_THROW(dist::all_reduce(t, dist::ReduceOp::BAND), dist::ArgumentError);
                EXPECT_THROW(dist::all_reduce(at::ones({2}, cuda.dtype(at::kShort))), dist::ArgumentError);
                const dist::Group part = dist::new_group({0});
                dist::all_reduce(t, dist::ReduceOp::SUM, part);
                dist::barrier();
                dist::barrier(part);
                EXPECT_EQ(dist::all_gather_object(7), std::vector<int>{7});
                at::Tensor host = at::ones({2});
                dist::all_reduce(host);
                EXPECT_TRUE(t.equal(expected));
                dist::current_context()->check_device_works();
              },
              {.backend = kMixed});
}

TEST_F(DeviceGroups, AbortWhileACollectiveWaitsForItsStream) {
  spawn_ranks(1,
              [](int, int size) {
                const auto context = dist::current_context();
                const at::Tensor state = at::full({1 << 20}, 3.0, at::kCUDA);
                at::Tensor t = at::ones({1 << 20}, at::kCUDA);
                torch::cuda::synchronize();
                {
                  Spin spin;
                  const dist::Work work = dist::all_reduce(t, dist::ReduceOp::SUM, {}, /*async_op=*/true);
                  EXPECT_FALSE(work.is_completed());
                  context->abort("interrupted");  // returns although the device is stuck
                  EXPECT_THROW(dist::all_reduce(t), dist::Aborted);
                  EXPECT_THAT(caught<dist::Aborted>([&] { context->check_device_works(); }).what(),
                              AllOf(HasSubstr("all_reduce"), HasSubstr("interrupted")));
                }
                dist::regroup(1, RankSet::all(size));
                EXPECT_EQ(state.sum().item<float>(), 3.0F * (1 << 20));
                at::Tensor after = at::full({4}, 2.0, at::kCUDA);
                dist::all_reduce(after);
                EXPECT_EQ(after.sum().item<float>(), 8);
                context->check_device_works();
              },
              {.backend = kMixed});
}

// torch.cuda.graph() captures in the mode in which a query of an event by any thread ends the capture.
TEST_F(DeviceGroups, AGraphWithACollectiveIsCapturedWhileAnotherThreadAsksAsForAHang) {
  spawn_ranks(1,
              [](int, int) {
                const auto context = dist::current_context();
                at::Tensor t = at::ones({1 << 20}, at::kCUDA);
                dist::all_reduce(t);  // the communicator is made before
                torch::cuda::synchronize();
                // c10d::dump_nccl_trace_json(bool includeCollectives, bool onlyActive)
                const auto recorder = reinterpret_cast<std::string (*)(bool, bool)>(
                    ::dlsym(RTLD_DEFAULT, "_ZN4c10d20dump_nccl_trace_jsonB5cxx11Ebb"));
                ASSERT_TRUE(recorder);
                std::atomic<int64_t> looks = 0;
                const std::jthread hang([&](const std::stop_token& over) {
                  for (; !over.stop_requested(); ++looks) {
                    context->log()->device_progress().look();
                    dist::query_devices([&] { recorder(/*includeCollectives=*/true, /*onlyActive=*/false); });
                  }
                });
                const c10::cuda::CUDAStream stream = c10::cuda::getStreamFromPool();
                const c10::cuda::CUDAStreamGuard guard(stream);
                const auto all_reduce_twice = [&] {  // one before a look, one after it, and neither needs memory
                  for (int i = 0; i < 2; ++i) {
                    dist::all_reduce(t.mul_(2));
                    for (const int64_t before = looks; looks < before + 3;) std::this_thread::yield();
                  }
                };
                cudaGraph_t graph = nullptr;
                C10_CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
                all_reduce_twice();
                C10_CUDA_CHECK(cudaStreamEndCapture(stream, &graph));
                cudaGraphExec_t program = nullptr;
                C10_CUDA_CHECK(cudaGraphInstantiate(&program, graph, 0));
                for (int i = 0; i < 3; ++i) C10_CUDA_CHECK(cudaGraphLaunch(program, stream));
                stream.synchronize();
                EXPECT_EQ(t.min().item<float>(), 64) << "three launches of two multiplications by 2";
                EXPECT_EQ(t.max().item<float>(), 64);
                C10_CUDA_CHECK(cudaGraphExecDestroy(program));
                C10_CUDA_CHECK(cudaGraphDestroy(graph));
                all_reduce_twice();
                context->check_device_works();
              },
              {.backend = kMixed});
}

// A communicator of two ranks of which one never comes is what one GPU can have stuck inside NCCL.
TEST_F(DeviceGroups, AbortOfACommunicatorThatIsBeingMade) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const auto connector = dist::find_backend("nccl").factory(
      {.name = "two", .group_rank = 0, .ranks = {0, 1}, .timeout = std::chrono::minutes(5)});
  const std::string own = connector->announcement();
  auto connected = std::async(std::launch::async, [&] {
    return caught<dist::Error>([&] { connector->connect(store, {own, "another GPU"}, std::chrono::minutes(5)); });
  });
  store->wait({"0"});  // the id of the communicator
  connector->interrupt();
  EXPECT_THAT(connected.get().what(), HasSubstr("was interrupted"));
  // Others can be made at once.
  spawn_ranks(1, [](int, int) { dist::barrier(); }, {.backend = kMixed});
}

TEST_F(DeviceGroups, TwoRanksOfOneGpuAreRefusedByNccl) {
  const auto connector = dist::find_backend("nccl").factory(
      {.name = "two", .group_rank = 0, .ranks = {0, 1}, .timeout = std::chrono::minutes(5)});
  const std::string own = connector->announcement();
  EXPECT_THAT(caught<dist::Error>([&] {
                connector->connect(c10::make_intrusive<c10d::HashStore>(), {own, own}, std::chrono::minutes(5));
              }).what(),
              AllOf(HasSubstr("ranks 0 and 1 are on one GPU"), HasSubstr("--share-gpu")));
}

TEST_F(DeviceGroups, GlooWithTensorsOfOneDevice) {
  const auto outcomes = run_as_processes(
      2,
      [](int rank, int) {
        const at::Tensor base = at::arange(1000, at::TensorOptions().device(at::kCUDA).dtype(at::kFloat));
        at::Tensor t = base * (rank + 1);
        dist::all_reduce(t);
        EXPECT_TRUE(t.equal(base * 3));
        at::Tensor later = base * (rank + 1);
        const dist::Work work = dist::all_reduce(later, dist::ReduceOp::AVG, {}, /*async_op=*/true);
        work.wait();
        EXPECT_TRUE(later.equal(base * 1.5));
        const auto all = dist::all_gather(at::full({3}, rank, at::kCUDA));
        EXPECT_TRUE(all[1].is_cuda());
        EXPECT_EQ(all[1].sum().item<float>(), 3);
        at::Tensor half = at::empty({500}, base.options());
        dist::reduce_scatter_tensor(half, base);
        EXPECT_TRUE(half.equal(base.narrow(0, rank * 500, 500) * 2));
        at::Tensor columns = (base.view({100, 10}) * (rank + 1)).t();
        dist::broadcast(columns, 1);
        EXPECT_TRUE(columns.equal((base.view({100, 10}) * 2).t()));
        if (rank == 0)
          dist::send(base, 1);
        else
          dist::recv(t, 0);
        if (rank == 1) {
          EXPECT_TRUE(t.equal(base));
        }
      },
      {.backend = "gloo"});
  for (const auto& outcome : outcomes) EXPECT_TRUE(outcome.ok()) << outcome;
}

/// Losses of some steps of data-parallel training on `device`.
std::vector<double> train(at::Device device, int rank) {
  torch::manual_seed(1);
  torch::nn::Sequential net(torch::nn::Linear(16, 32), torch::nn::ReLU(), torch::nn::Linear(32, 1));
  net->to(torch::kDouble);
  net->to(device);
  auto ddp = ddp::DistributedDataParallel(net);
  torch::optim::SGD optimizer(ddp->parameters(), 0.1);
  const at::Tensor data = torch::arange(2 * 8 * 16, torch::kDouble).view({2, 8, 16}).sin()[rank].to(device);
  std::vector<double> losses;
  for (int step = 0; step < 5; ++step) {
    optimizer.zero_grad();
    const at::Tensor loss = ddp(data).square().mean();
    loss.backward();
    optimizer.step();
    losses.push_back(loss.item<double>());
  }
  return losses;
}

TEST_F(DeviceGroups, DdpOnADeviceIsThatOfTheCpu) {
  const auto outcomes = run_as_processes(2,
                                         [](int rank, int) {
                                           const auto on_cpu = train(at::kCPU, rank),
                                                      on_device = train(at::kCUDA, rank);
                                           for (size_t i = 0; i < on_cpu.size(); ++i)
                                             EXPECT_NEAR(on_cpu[i], on_device[i], 1e-12) << "step " << i;
                                         },
                                         {.backend = "gloo"});
  for (const auto& outcome : outcomes) EXPECT_TRUE(outcome.ok()) << outcome;
}

TEST_F(DeviceGroups, DdpOfOneRankOnNcclIsThatOfTheCpu) {
  spawn_ranks(1,
              [](int, int) {
                const auto on_cpu = train(at::kCPU, 0), on_device = train(at::kCUDA, 0);
                for (size_t i = 0; i < on_cpu.size(); ++i) EXPECT_NEAR(on_cpu[i], on_device[i], 1e-12) << "step " << i;
              },
              {.backend = kMixed});
}

}  // namespace
}  // namespace lockstep
