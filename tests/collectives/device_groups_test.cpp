// Groups with a backend for a device beside Gloo: which tensors go where, what is logged when, and that ranks leave
// operations that a device has queued. A stand-in takes the device's place.
#include <gmock/gmock.h>
#include <signal.h>
#include <unistd.h>

#include <thread>

#include "collectives/dist.h"
#include "collectives/rank_context.h"
#include "collectives/session_group.h"
#include "collectives/transport/backend_config.h"
#include "collectives/watch/stream_mark.h"
#include "tests/collectives/stuck_ranks.h"
#include "tests/support/spawn_ranks.h"
#include "tests/support/stand_in_backend.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::RankOptions;
using testing::run_as_processes;
using ::testing::SizeIs;
using testing::spawn_ranks;
using testing::StandIn;

constexpr const char* kMixed = "cpu:gloo,cuda:stand_in";

/// Of each rank that is a thread, by the context that it makes; of the process where ranks are processes.
std::shared_ptr<StandIn> stand_in() {
  static thread_local const auto state = std::make_shared<StandIn>();
  return state;
}

RankOptions mixed() {
  testing::register_stand_in(stand_in);
  return {.backend = kMixed};
}

TEST(BackendConfig, OneBackendTakesItsDevice) {
  const dist::BackendConfig gloo("gloo");
  EXPECT_EQ(gloo.by_device(), "cpu:gloo");
  EXPECT_EQ(gloo.device_part(), nullptr);
  EXPECT_EQ(gloo.part_for(c10::DeviceType::CUDA), nullptr);  // this process has no such device
}

TEST(BackendConfig, OneBackendForEachDevice) {
  testing::register_stand_in(stand_in);
  const dist::BackendConfig config("cuda:stand_in,cpu:gloo");
  EXPECT_EQ(config.str(), "cuda:stand_in,cpu:gloo");
  EXPECT_EQ(config.parts().front().backend, "gloo");
  EXPECT_EQ(config.part_for(c10::DeviceType::CUDA)->backend, "stand_in");
  EXPECT_EQ(config.device_part()->device, c10::DeviceType::CUDA);
  EXPECT_EQ(dist::BackendConfig("stand_in").part_for(c10::DeviceType::CPU), nullptr);
  EXPECT_EQ(dist::BackendConfig("cpu:gloo,cuda:gloo").parts().size(), 1U);
}

TEST(BackendConfig, WhatIsNoneIsNamed) {
  testing::register_stand_in(stand_in);
  const auto error = [](const char* text) {
    return std::string(caught<dist::ArgumentError>([&] { dist::BackendConfig{text}; }).what());
  };
  EXPECT_THAT(error("glo"), HasSubstr("there is no backend 'glo'"));
  EXPECT_THAT(error("cpu:gloo,stand_in"), HasSubstr("names no device for 'stand_in'"));
  EXPECT_THAT(error("gpu:stand_in"), HasSubstr("'gpu'"));
  EXPECT_THAT(error("cpu:gloo,cpu:stand_in"), HasSubstr("names cpu twice"));
  if (!c10::impl::hasDeviceGuardImpl(c10::DeviceType::CUDA))
    EXPECT_THAT(error("cuda:gloo"), HasSubstr("names no device that this process has"));
  EXPECT_THAT(error("cpu:stand_in"), HasSubstr("which takes cuda tensors"));
}

TEST(DeviceGroup, CpuTensorsAndObjectsGoOverGloo) {
  spawn_ranks(
      2,
      [](int rank, int) {
        EXPECT_EQ(dist::get_backend(), kMixed);
        EXPECT_EQ(dist::get_backend_config(), kMixed);
        at::Tensor t = at::full({4}, rank + 1.0);
        dist::all_reduce(t);
        EXPECT_EQ(t[0].item<double>(), 3);
        EXPECT_EQ(dist::all_gather_object(rank), (std::vector<int>{0, 1}));
        dist::monitored_barrier();
        EXPECT_EQ(stand_in()->operations, 0);
        dist::barrier();  // the device's: what its streams were given before has ended
        EXPECT_EQ(stand_in()->operations, 1);
      },
      mixed());
}

TEST(DeviceGroup, WithoutGlooRefusesCpuTensors) {
  testing::register_stand_in(stand_in);
  spawn_ranks(2,
              [](int rank, int) {
                EXPECT_THAT(caught<dist::ArgumentError>([] { dist::all_reduce(at::ones({1})); }).what(),
                            AllOf(HasSubstr("is on cpu"), HasSubstr("stand_in"), HasSubstr("takes cuda tensors")));
                EXPECT_EQ(dist::all_gather_object(rank), (std::vector<int>{0, 1}));
              },
              {.backend = "stand_in"});
}

TEST(DeviceGroup, AnOperationIsDoneWhenTheDeviceIs) {
  spawn_ranks(
      2,
      [](int, int) {
        stand_in()->hold = true;
        dist::barrier();  // the host goes on
        const dist::Work work = dist::barrier({}, /*async_op=*/true);
        work.wait();
        EXPECT_FALSE(work.is_completed());
        EXPECT_THROW(work.wait(std::chrono::milliseconds(5)), dist::TimedOut);
        EXPECT_THAT(dist::collectives_in_flight(), SizeIs(2));
        stand_in()->release();
        EXPECT_TRUE(work.is_success());
        EXPECT_THAT(dist::collectives_in_flight(), IsEmpty());
        dist::current_context()->check_device_works();
      },
      mixed());
}

TEST(DeviceGroup, AbortFreesWhatIsQueuedAndTheRankHearsOfIt) {
  spawn_ranks(
      2,
      [](int rank, int size) {
        at::Tensor state = at::ones({3});
        stand_in()->hold = true;
        dist::barrier();
        const dist::Work work = dist::barrier({}, /*async_op=*/true);
        const auto context = dist::current_context();
        meet(dist::default_group()->getStore(), "queued", rank, size);
        EXPECT_THAT(dist::collectives_in_flight(), SizeIs(2));
        meet(dist::default_group()->getStore(), "seen", rank, size);
        context->abort("interrupted");
        EXPECT_GE(stand_in()->interrupted, 1);  // the end of the peer's connection interrupts as well
        EXPECT_THAT(dist::collectives_in_flight(), IsEmpty());
        // The program may go on as if the results were there; then check_device_works() throws.
        EXPECT_THAT(caught<dist::Aborted>([&] { context->check_device_works(); }).what(),
                    AllOf(HasSubstr("barrier, #1 of group default"), HasSubstr("interrupted")));
        context->check_device_works();  // once
        EXPECT_THROW(work.wait(), dist::Aborted);
        EXPECT_FALSE(work.is_success());
        EXPECT_THROW(dist::barrier(), dist::Aborted);
        EXPECT_TRUE(dist::needs_regroup());

        meet(dist::default_group()->getStore(), "out", rank, size);
        dist::regroup(1, RankSet::all(size));
        EXPECT_EQ(stand_in()->connections, 2);
        stand_in()->hold = false;
        dist::barrier();
        dist::all_reduce(state);
        EXPECT_EQ(state[0].item<float>(), 2);
        context->check_device_works();
      },
      mixed());
}

TEST(DeviceGroup, WhatAnEarlierCellHasLostIsNotThrownInALaterOne) {
  spawn_ranks(
      1,
      [](int, int size) {
        stand_in()->hold = true;
        dist::barrier();
        dist::current_context()->abort("interrupted");  // and the cell throws something else
        dist::regroup(1, RankSet::all(size));
        dist::current_context()->check_device_works();
      },
      mixed());
}

TEST(DeviceGroup, WhatIsCapturedIntoAGraphIsNotWaitedFor) {
  dist::set_stream_capture_query([](c10::Device device) { return device.is_cuda(); });
  spawn_ranks(
      1,
      [](int, int) {
        stand_in()->hold = true;
        dist::barrier();
        EXPECT_THAT(dist::collectives_in_flight(), IsEmpty());
        dist::abort("stop");
        dist::current_context()->check_device_works();
      },
      mixed());
  dist::set_stream_capture_query(nullptr);
}

TEST(DeviceGroup, ATimeLimitOfTheDeviceBreaksTheGroupOff) {
  spawn_ranks(
      1,
      [](int, int) {
        stand_in()->hold = true;
        dist::barrier();
        stand_in()->release(c10d::WorkResult::TIMEOUT);
        EXPECT_TRUE(dist::needs_regroup());
        EXPECT_THROW(dist::current_context()->check_device_works(), dist::TimedOut);
      },
      mixed());
}

TEST(DeviceGroup, AnErrorOfTheDeviceIsNoTimeLimit) {
  spawn_ranks(
      1,
      [](int, int) {
        stand_in()->hold = true;
        const dist::Work work = dist::barrier({}, /*async_op=*/true);
        stand_in()->release(c10d::WorkResult::COMM_ERROR,
                            std::make_exception_ptr(std::runtime_error("unhandled cuda error (run with NCCL_DEBUG)")));
        EXPECT_THAT(caught<dist::Error>([] { dist::current_context()->check_device_works(); }).what(),
                    AllOf(HasSubstr("barrier"), HasSubstr("unhandled cuda error")));
      },
      mixed());
}

TEST(DeviceGroup, AnErrorThatNcclThrowsAtOnceIsNoTimeLimitEither) {
  const auto outcomes = testing::run_as_threads(
      1,
      [](int, int) {
        stand_in()->refusal = "NCCL error: unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
        dist::barrier();
      },
      mixed());
  EXPECT_EQ(outcomes[0].type, "lockstep::dist::Error") << outcomes[0];
  EXPECT_THAT(outcomes[0].error, AllOf(HasSubstr("barrier"), HasSubstr("NCCL error: unhandled cuda error")));
}

// NCCL's kernels wait for a dead peer without end; Gloo's connections to it break.
TEST(DeviceGroup, ThePeersOfADeadRankAreFreed) {
  testing::register_stand_in(stand_in);
  const auto outcomes = run_as_processes(
      2,
      [](int rank, int) {
        const dist::Store store = dist::default_group()->getStore();
        stand_in()->hold = true;
        dist::barrier();
        if (rank == 1) {
          store->wait({"queued"});
          kill(getpid(), SIGKILL);
        }
        store->set("queued", "it");
        stand_in()->wait_until_interrupted();
        const auto error = caught<dist::PeerLeft>([] { dist::current_context()->check_device_works(); });
        EXPECT_EQ(error.ranks, RankSet({1}));
        EXPECT_THAT(error.what(), HasSubstr("has died"));
      },
      {.backend = kMixed});
  EXPECT_EQ(outcomes[1].signal, SIGKILL);
  EXPECT_TRUE(outcomes[0].ok()) << outcomes[0];
}

TEST(DeviceGroup, ThePeersOfARankThatAbortsAreFreed) {
  testing::register_stand_in(stand_in);
  const auto outcomes = run_as_processes(
      2,
      [](int rank, int) {
        const dist::Store store = dist::default_group()->getStore();
        stand_in()->hold = true;
        dist::barrier();
        if (rank == 1) {
          store->wait({"queued"});
          dist::abort("stop");
          store->wait({"freed"});
          return;
        }
        store->set("queued", "it");
        stand_in()->wait_until_interrupted();
        const auto error = caught<dist::PeerLeft>([] { dist::current_context()->check_device_works(); });
        EXPECT_THAT(error.what(), HasSubstr("rank 1 left the collective barrier"));
        store->set("freed", "it");
      },
      {.backend = kMixed});
  for (const auto& outcome : outcomes) EXPECT_TRUE(outcome.ok()) << outcome;
}

TEST(DeviceGroup, EachGroupHasConnectionsOfItsOwn) {
  spawn_ranks(
      3,
      [](int rank, int) {
        const dist::Group pair = dist::new_group({0, 2});
        EXPECT_EQ(dist::get_backend_config(pair), rank == 1 ? "cpu:gloo,cuda:stand_in" : kMixed);
        EXPECT_EQ(stand_in()->connections, rank == 1 ? 1 : 2);
        dist::new_group({0, 1}, dist::kDefaultTimeout, "gloo");
        EXPECT_EQ(stand_in()->connections, rank == 1 ? 1 : 2);
        if (rank != 1) dist::barrier(pair);
        meet(dist::default_group()->getStore(), "out", rank, 3);
        dist::regroup(1, RankSet::all(3));
        if (rank != 1) dist::barrier(pair);
      },
      mixed());
}

TEST(DeviceGroup, ADestroyedGroupIsClosedAndNotInterrupted) {
  spawn_ranks(
      2,
      [](int, int) {
        const dist::Group group = dist::new_group();
        dist::barrier(group);
        dist::destroy_process_group(group);
        EXPECT_EQ(stand_in()->closed, 1);
        EXPECT_EQ(stand_in()->interrupted, 0);
        dist::barrier();
      },
      mixed());
}

}  // namespace
}  // namespace lockstep
