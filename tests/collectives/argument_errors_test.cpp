// Errors of arguments say what to do; the group and the calls in flight continue.
#include <gmock/gmock.h>

#include "collectives/dist.h"
#include "tests/collectives/tensors.h"
#include "tests/support/argument_error.h"
#include "tests/support/spawn_ranks.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using testing::argument_error;
using ::testing::HasSubstr;
using testing::spawn_ranks;

TEST(AnyArgument, MessagesSayWhatToDo) {
  spawn_ranks(2, [](int rank, int) {
    const at::Tensor good = at::ones({4});
    EXPECT_THAT(argument_error([&] { dist::all_reduce(at::ones({1}).expand({4})); }), HasSubstr("expand"));
    EXPECT_THAT(argument_error([&] {
                  Tensors twice(2, at::empty({4}));
                  dist::all_gather(twice, good);
                }),
                AllOf(HasSubstr("tensor_list[0] and tensor_list[1] share memory"), HasSubstr("n times")));
    EXPECT_THAT(argument_error([&] {
                  Tensors list{at::empty({4}), at::empty({2, 2})};
                  dist::all_gather(list, good);
                }),
                AllOf(HasSubstr("tensor_list[1] is float32 [2, 2]"), HasSubstr("tensor is float32 [4]")));
    EXPECT_THAT(argument_error([&] { dist::send(good, 1 - rank, {}, -1); }), HasSubstr("tag = -1; tags go from 0"));
    EXPECT_THAT(argument_error([&] { dist::irecv(good, 1 - rank, {}, -7); }), HasSubstr("tag = -7"));
    EXPECT_THAT(argument_error([&] { dist::all_to_all_single(good, good, {5, -1}, {2, 2}); }), HasSubstr("hold 5"));
    EXPECT_THAT(argument_error([&] { dist::all_to_all_single(at::scalar_tensor(1), good); }),
                HasSubstr("no dimension that could be split"));
    EXPECT_THAT(argument_error([&] { dist::monitored_barrier({}, std::chrono::milliseconds(0)); }),
                HasSubstr("timeout = 0 ms"));
    EXPECT_THAT(argument_error([&] { dist::new_group({}, std::chrono::milliseconds(-1)); }),
                HasSubstr("timeout = -1 ms"));
    EXPECT_THAT(argument_error([&] { dist::broadcast(good, dist::group_src(2)); }),
                HasSubstr("group_src = 2, but the ranks of group default go from 0 to 1"));
    EXPECT_THAT(argument_error([&] { dist::all_reduce(at::ones({2, 3}, at::kShort).to_sparse()); }),
                AllOf(HasSubstr("sparse and int16"), HasSubstr("to_dense")));
    EXPECT_THAT(argument_error([&] { dist::all_reduce_coalesced({good, at::ones({4}, at::kLong)}); }),
                HasSubstr("tensors[1] is int64, but tensors[0] is float32"));
    EXPECT_THAT(argument_error([&] { dist::all_reduce_coalesced({}); }), HasSubstr("is empty"));
    dist::barrier();
  });
}

/// By the name that the function has in this LibTorch.
template <typename Factor>
c10d::ReduceOp premul_sum(Factor factor) {
  using namespace c10d;
  if constexpr (requires { makePreMulSum(factor); })
    return makePreMulSum(factor);
  else
    return makeNCCLPreMulSum(factor);
}

TEST(AnyArgument, PremulSumHasAFactor) {
  spawn_ranks(1, [](int, int) {
    const auto error = argument_error([] { dist::all_reduce(at::ones({2}), dist::ReduceOp::PREMUL_SUM); });
    EXPECT_THAT(error, AllOf(HasSubstr("makePreMulSum"), HasSubstr("t.mul_(factor)")));
    EXPECT_THAT(argument_error([] { dist::ReduceOp op(dist::ReduceOp::PREMUL_SUM); }), HasSubstr("PREMUL_SUM"));
    EXPECT_THAT(argument_error([] { dist::all_reduce(at::ones({2}), premul_sum(0.5)); }),
                HasSubstr("needs the backend nccl"));
    dist::barrier();
  });
}

TEST(AnyArgument, ALimitThatPassesLeavesARecvGoing) {
  spawn_ranks(2, [](int rank, int) {
    at::Tensor tensor = at::zeros({3});
    if (rank == 1) {
      const dist::Work work = dist::irecv(tensor, 0);
      EXPECT_FALSE(work.is_completed());
      EXPECT_THROW(work.wait(std::chrono::milliseconds(20)), dist::TimedOut);
      EXPECT_THROW(work.wait(std::chrono::milliseconds(-1)), dist::ArgumentError);
      dist::barrier();
      work.wait();
      work.wait();  // again
      EXPECT_TRUE(work.is_completed() && work.is_success());
    } else {
      dist::barrier();
      dist::send(at::ones({3}), 1);
    }
    dist::barrier();
    EXPECT_EQ(tensor[0].item<float>(), rank);
  });
}

}  // namespace
}  // namespace lockstep
