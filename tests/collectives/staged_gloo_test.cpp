// Gloo for tensors of a device, through host memory: on the fake device, one for each rank. Under the late schedule
// each result is right only if every wait between the caller's stream, the side stream and the host is there.
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <chrono>
#include <complex>
#include <future>
#include <vector>

#include "collectives/dist.h"
#include "collectives/session_group.h"
#include "tests/support/fake_device/fake_device.h"
#include "tests/support/spawn_ranks.h"

namespace lockstep::dist {
namespace {

using fake::Schedule;
using testing::RankOptions;

void on_devices(int world_size, const testing::RankFunction& function, const char* backend = "gloo_fake") {
  testing::spawn_processes(
      world_size,
      [&](int rank, int size) {
        c10::impl::VirtualGuardImpl(c10::DeviceType::PrivateUse1).setDevice(fake::device(rank));
        function(rank, size);
      },
      RankOptions{.backend = backend});
}

/// Two numbers of this rank on its device.
at::Tensor numbers(int rank) {
  return torch::arange(2.0, torch::TensorOptions().device(fake::device(rank))).add(10 * (rank + 1));
}

std::vector<float> values(const at::Tensor& tensor) {
  const at::Tensor host = tensor.cpu().to(torch::kFloat).contiguous().flatten();
  return {host.const_data_ptr<float>(), host.const_data_ptr<float>() + host.numel()};
}

using Values = std::vector<float>;

TEST(StagedGloo, EveryCollectiveWaitsForItsInputsAndResultsForIt) {
  on_devices(2, [](int rank, int) {
    const fake::Scope scope({.schedule = Schedule::late, .poison = false, .delays = {}});
    at::Tensor t = numbers(rank);
    all_reduce(t);
    EXPECT_EQ(values(t), (Values{30, 32}));
    t = numbers(rank);
    all_reduce(t, ReduceOp::AVG);
    EXPECT_EQ(values(t), (Values{15, 16}));
    t = numbers(rank);
    broadcast(t, 1);
    EXPECT_EQ(values(t), (Values{20, 21}));
    t = numbers(rank);
    reduce(t, 0);
    EXPECT_EQ(values(t), rank == 0 ? (Values{30, 32}) : (Values{20, 21}));
    EXPECT_EQ(values(torch::stack(all_gather(numbers(rank)))), (Values{10, 11, 20, 21}));
    t = torch::empty({4}, numbers(rank).options());
    all_gather_into_tensor(t, numbers(rank));
    EXPECT_EQ(values(t), (Values{10, 11, 20, 21}));
    const auto gathered = gather(numbers(rank), 1);
    if (rank == 1) EXPECT_EQ(values(torch::stack(gathered)), (Values{10, 11, 20, 21}));
    t = torch::empty({2}, numbers(rank).options());
    scatter(t, rank == 0 ? std::vector<at::Tensor>{numbers(0), numbers(0) * 2} : std::vector<at::Tensor>(), 0);
    EXPECT_EQ(values(t), rank == 0 ? (Values{10, 11}) : (Values{20, 22}));
    t = torch::empty({1}, numbers(rank).options());
    reduce_scatter_tensor(t, numbers(rank));
    EXPECT_EQ(values(t), rank == 0 ? Values{30} : Values{32});
    t = torch::empty({2}, numbers(rank).options());
    all_to_all_single(t, numbers(rank));
    EXPECT_EQ(values(t), rank == 0 ? (Values{10, 20}) : (Values{11, 21}));
    barrier();
  });
}

TEST(StagedGloo, MessagesWaitAsWell) {
  on_devices(2, [](int rank, int) {
    const fake::Scope scope({.schedule = Schedule::late, .poison = false, .delays = {}});
    at::Tensor received = torch::zeros({2}, torch::TensorOptions().device(fake::device(rank)));
    if (rank == 0) {
      send(numbers(0), 1);
      recv(received, 1);
    } else {
      recv(received, 0);
      isend(numbers(1), 0).wait();
    }
    EXPECT_EQ(values(received), rank == 0 ? (Values{20, 21}) : (Values{10, 11}));
  });
}

TEST(StagedGloo, TensorsOfAllKinds) {
  on_devices(2, [](int rank, int) {
    const fake::Scope scope({.schedule = Schedule::late, .poison = true, .delays = {}});
    const auto device = torch::TensorOptions().device(fake::device(rank));
    const at::Tensor square = torch::zeros({3, 3}, device);
    all_reduce(square.t()[1].add_(rank + 1));  // strided
    EXPECT_EQ(values(square), (Values{0, 3, 0, 0, 3, 0, 0, 3, 0}));
    const at::Tensor complex = torch::full({2}, c10::complex<double>(rank + 1, 1), device.dtype(torch::kComplexFloat));
    all_reduce(complex);
    EXPECT_EQ(values(at::view_as_real(complex)), (Values{3, 2, 3, 2}));
    const at::Tensor flags = torch::tensor({rank == 0, false}).to(fake::device(rank));
    all_reduce(flags);
    EXPECT_EQ(values(flags), (Values{1, 0}));
    at::Tensor parameter = torch::ones({2}, device.requires_grad(true));
    broadcast(parameter, 0);
    EXPECT_EQ(parameter._version(), 0U);
    at::Tensor empty = torch::empty({0}, device);
    all_reduce(empty);
    EXPECT_THROW(all_reduce(torch::ones({2})), ArgumentError);
  });
}

// Ranks of one group may be on different devices, as with PyTorch's Gloo.
TEST(StagedGloo, TensorsOnTheHostAndOnADeviceMeet) {
  on_devices(
      2,
      [](int rank, int) {
        const fake::Scope scope({.schedule = Schedule::late, .poison = true, .delays = {}});
        at::Tensor t = rank == 0 ? numbers(0) : numbers(1).cpu();
        all_reduce(t);
        EXPECT_EQ(values(t), (Values{30, 32}));
      },
      "gloo");
}

TEST(StagedGloo, SynchronizeWaitsForTheResults) {
  on_devices(2, [](int rank, int) {
    const fake::Scope scope({.schedule = Schedule::late, .poison = true, .delays = {}});
    std::vector<at::Tensor> tensors{numbers(rank)};
    const auto work = default_group()->allreduce(tensors);
    work->synchronize();
    EXPECT_EQ(values(tensors[0]), (Values{30, 32}));
    tensors[0] = numbers(rank);
    const auto other = default_group()->allreduce(tensors);
    other->blockCurrentStream();
    EXPECT_EQ(values(tensors[0]), (Values{30, 32}));
  });
}

// A group that is destroyed right after its last collective is not broken off: the device gets the time to end it, and
// a peer that comes later gets its result.
TEST(StagedGloo, AGroupIsDestroyedWhenItsDeviceIsDone) {
  on_devices(2, [](int rank, int) {
    const fake::Scope scope(
        {.schedule = Schedule::eager, .poison = true, .delays = {{"copy", std::chrono::milliseconds(50)}}});
    const Group pair = new_group({0, 1});
    at::Tensor t = numbers(rank);
    const Work work = all_reduce(t, ReduceOp::SUM, pair, /*async_op=*/true);
    work.wait();
    EXPECT_FALSE(collectives_in_flight().empty()) << "the device is done already, so that this shows nothing";
    destroy_process_group(pair);
    EXPECT_EQ(values(t), (Values{30, 32}));
  });
}

// The host does not wait for the device before wait(), nor does the caller's stream for the collective.
TEST(StagedGloo, TheCallerGoesOn) {
  on_devices(2, [](int rank, int) {
    const fake::Scope scope({});
    fake::Hold hold(fake::current_stream(rank));
    at::Tensor t = numbers(rank), u = numbers(rank);
    const Work first = all_reduce(t, ReduceOp::SUM, {}, /*async_op=*/true);
    const Work second = all_reduce(u, ReduceOp::SUM, {}, /*async_op=*/true);
    EXPECT_FALSE(first.is_completed());
    hold.release();
    second.wait();
    first.wait();
    EXPECT_EQ(values(t + u), (Values{60, 64}));
  });
}

// The inputs are freed when the call returns. Their memory is still read by the side stream, which is slow.
TEST(StagedGloo, MemoryIsKeptForTheSideStream) {
  on_devices(2, [](int rank, int) {
    const fake::Scope scope(
        {.schedule = Schedule::eager, .poison = true, .delays = {{"copy", std::chrono::milliseconds(20)}}});
    at::Tensor all = torch::empty({4}, torch::TensorOptions().device(fake::device(rank)));
    const Work work = all_gather_into_tensor(all, numbers(rank), {}, /*async_op=*/true);
    fake::current_stream(rank).synchronize();
    work.wait();
    EXPECT_EQ(values(all), (Values{10, 11, 20, 21}));
  });
}

// A future's callbacks run on streams of their own; what the watched work does at the end (here the division of AVG)
// runs there, too, and wait() has to come after it.
TEST(StagedGloo, WaitComesAfterWhatAFutureHasQueued) {
  on_devices(2, [](int rank, int) {
    const fake::Scope scope({.schedule = Schedule::late, .poison = true, .delays = {}});
    at::Tensor t = numbers(rank);
    const Work work = all_reduce(t, ReduceOp::AVG, {}, /*async_op=*/true);
    const auto future = work.get_future();
    future->wait();
    {
      const c10::StreamGuard guard(
          c10::impl::VirtualGuardImpl(c10::DeviceType::PrivateUse1).getNewStream(fake::device(rank)));
      work.wait();
      EXPECT_EQ(values(t), (Values{15, 16}));
    }
  });
}

TEST(StagedGloo, AbortFreesWorkWhoseInputsAreNotThereYet) {
  on_devices(2, [](int rank, int) {
    const fake::Scope scope({});
    at::Tensor t = numbers(rank), kept = t.clone();
    fake::synchronize();
    fake::Hold hold(fake::current_stream(rank));
    t.add_(1);  // is queued, and stays so
    const Work first = all_reduce(t, ReduceOp::SUM, {}, /*async_op=*/true);
    const Work second = all_reduce(kept, ReduceOp::SUM, {}, /*async_op=*/true);
    abort("test");
    EXPECT_THROW(first.wait(), Aborted);
    EXPECT_THROW(second.wait(), Aborted);
    hold.release();
    EXPECT_EQ(values(t), rank == 0 ? (Values{11, 12}) : (Values{21, 22})) << "the tensor has to stay as it was";
    EXPECT_EQ(values(kept), rank == 0 ? (Values{10, 11}) : (Values{20, 21}));
    regroup(1, RankSet::all(2), std::chrono::minutes(1));
    all_reduce(t);
    EXPECT_EQ(values(t), (Values{32, 34}));
  });
}

}  // namespace
}  // namespace lockstep::dist
