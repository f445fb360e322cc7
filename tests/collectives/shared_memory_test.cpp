// Ranks of one machine that share memory: what every collective gives, for all dtypes, operations and sizes, against the
// definition and, on two ranks, against Gloo's bits; and what ends a wait for a rank that does not come.
#include <gmock/gmock.h>
#include <signal.h>

#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "collectives/dist.h"
#include "collectives/log/collective_log_layout.h"
#include "collectives/rank_context.h"
#include "collectives/transport/backend_factory.h"
#include "collectives/transport/shared_memory/shared_exchange.h"
#include "tests/collectives/stuck_ranks.h"
#include "tests/collectives/tensors.h"
#include "tests/support/spawn_ranks.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::run_as_processes;
using testing::run_as_threads;
using testing::spawn_ranks;
using Op = dist::ReduceOp;

const testing::RankOptions kShared{.backend = "shared_memory"};
constexpr std::chrono::milliseconds kFar = std::chrono::minutes(1);

// None; one; fewer than ranks; what all ranks reduce whole; a part for each rank, uneven; more than a slot holds.
constexpr int64_t kSizes[] = {0, 1, 2, 1001, 9001, 200'003};

/// What `rank` gives. Sums of it depend on their order.
at::Tensor given(int rank, int64_t count, at::ScalarType type) {
  const at::Tensor numbers = at::arange(count, at::kDouble).mul(0.37).add(rank).sin();
  if (type == at::kBool) return numbers.gt(0.2);
  if (at::isComplexType(type)) return at::complex(numbers, numbers.mul(2)).to(type);
  return at::isFloatingType(type) ? numbers.to(type) : numbers.mul(20).add(100).to(type);
}

at::Tensor combined(const Op& op, const at::Tensor& a, const at::Tensor& b) {
  const bool flags = a.scalar_type() == at::kBool;
  switch (op.op_) {
    case Op::SUM:
    case Op::AVG:
      return flags ? a.logical_or(b) : a.add(b);
    case Op::PRODUCT:
      return flags ? a.logical_and(b) : a.mul(b);
    case Op::MIN:
      return a.minimum(b);
    case Op::MAX:
      return a.maximum(b);
    case Op::BAND:
      return a.bitwise_and(b);
    case Op::BOR:
      return a.bitwise_or(b);
    default:
      return a.bitwise_xor(b);
  }
}

/// In the order of the ranks.
at::Tensor expected(const Op& op, int size, int64_t count, at::ScalarType type) {
  at::Tensor result = given(0, count, type);
  for (int rank = 1; rank < size; ++rank) result = combined(op, result, given(rank, count, type));
  if (op.op_ != Op::AVG) return result;
  if (result.is_complex()) return at::view_as_complex(at::view_as_real(result).div(size));
  return at::isIntegralType(type, false) ? result.div(size, "trunc") : result.div(size);
}

std::vector<Op::RedOpType> operations(at::ScalarType type) {
  if (at::isComplexType(type)) return {Op::SUM, Op::AVG};
  if (at::isFloatingType(type)) return {Op::SUM, Op::AVG, Op::PRODUCT, Op::MIN, Op::MAX};
  if (type == at::kBool) return {Op::SUM, Op::PRODUCT, Op::MIN, Op::MAX, Op::BAND, Op::BOR, Op::BXOR};
  return {Op::SUM, Op::AVG, Op::PRODUCT, Op::MIN, Op::MAX, Op::BAND, Op::BOR, Op::BXOR};
}

constexpr at::ScalarType kReduced[] = {at::kByte,   at::kChar,         at::kInt,          at::kLong,
                                       at::kBool,   at::kHalf,         at::kBFloat16,     at::kFloat,
                                       at::kDouble, at::kComplexFloat, at::kComplexDouble};
constexpr at::ScalarType kMoved[] = {at::kByte,  at::kBool,        at::kShort,  at::kLong,         at::kBFloat16,
                                     at::kFloat, at::kFloat8_e5m2, at::kDouble, at::kComplexDouble};

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() &&
         (a.numel() == 0 || a.contiguous().view(-1).view(at::kByte).equal(b.contiguous().view(-1).view(at::kByte)));
}

class SharedMemory : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(WorldSize, SharedMemory, ::testing::Values(2, 3, 4));

TEST_P(SharedMemory, AllReduceOfEveryDtypeAndOperation) {
  spawn_ranks(
      GetParam(),
      [](int rank, int size) {
        EXPECT_EQ(dist::get_backend(), "shared_memory");
        for (const auto type : kReduced)
          for (const auto op : operations(type))
            for (const int64_t count : {int64_t{3}, int64_t{9001}}) {
              at::Tensor tensor = given(rank, count, type);
              dist::all_reduce(tensor, op);
              EXPECT_TRUE(same_bits(tensor, expected(op, size, count, type))) << type << ' ' << int{op} << ' ' << count;
            }
      },
      kShared);
}

TEST_P(SharedMemory, AllReduceOfEverySize) {
  spawn_ranks(
      GetParam(),
      [](int rank, int size) {
        for (int round = 0; round < 2; ++round)  // both halves of the slots
          for (const int64_t count : kSizes) {
            at::Tensor tensor = given(rank, count, at::kFloat);
            dist::all_reduce(tensor);
            EXPECT_TRUE(same_bits(tensor, expected(Op::SUM, size, count, at::kFloat))) << count;
          }
      },
      kShared);
}

TEST_P(SharedMemory, TensorsWithStridesAndParameters) {
  spawn_ranks(
      GetParam(),
      [](int rank, int size) {
        at::Tensor square = at::zeros({300, 300}), whole = square.t().slice(1, 10, 290, 3);
        const at::Tensor mine = given(rank, whole.numel(), at::kFloat).view(whole.sizes());
        const at::Tensor sum = expected(Op::SUM, size, whole.numel(), at::kFloat).view(whole.sizes());
        whole.copy_(mine);
        dist::all_reduce(whole);
        EXPECT_TRUE(same_bits(whole, sum));
        EXPECT_EQ(square[11].count_nonzero().item<int64_t>(), 0);  // between its elements nothing is written
        whole.copy_(mine);
        dist::broadcast(whole, size - 1);
        EXPECT_TRUE(same_bits(whole, given(size - 1, whole.numel(), at::kFloat).view(whole.sizes())));
        at::Tensor parameter = at::ones({3}).set_requires_grad(true);
        const auto version = parameter._version();
        dist::all_reduce(parameter);
        EXPECT_TRUE(parameter.is_leaf() && parameter.requires_grad());
        EXPECT_EQ(parameter._version(), version);
        EXPECT_EQ(parameter[2].item<float>(), static_cast<float>(size));
      },
      kShared);
}

TEST_P(SharedMemory, WhatIsMovedArrivesOnEveryRank) {
  spawn_ranks(
      GetParam(),
      [](int rank, int size) {
        for (const auto type : kMoved)
          for (const int64_t count : kSizes) {
            if (count > 1001 && type != at::kDouble && type != at::kBool) continue;  // the same bytes in other numbers
            const int root = static_cast<int>(count % size);
            at::Tensor sent = given(rank, count, type);
            dist::broadcast(sent, root);
            EXPECT_TRUE(same_bits(sent, given(root, count, type))) << type << ' ' << count;
            const at::Tensor mine = given(rank, count, type);
            const Tensors gathered = dist::all_gather(mine);
            at::Tensor stacked = at::empty({size, count}, mine.options());
            dist::all_gather_into_tensor(stacked, mine);
            const Tensors on_root = dist::gather(mine, root);
            EXPECT_EQ(on_root.size(), rank == root ? static_cast<size_t>(size) : 0U);
            for (int each = 0; each < size; ++each) {
              const at::Tensor theirs = given(each, count, type);
              EXPECT_TRUE(same_bits(gathered[static_cast<size_t>(each)], theirs)) << type << ' ' << count;
              EXPECT_TRUE(same_bits(stacked[each], theirs)) << type << ' ' << count;
              if (rank == root) EXPECT_TRUE(same_bits(on_root[static_cast<size_t>(each)], theirs)) << type;
            }
          }
      },
      kShared);
}

TEST_P(SharedMemory, ReduceScatterOfEveryDtypeAndOperation) {
  spawn_ranks(
      GetParam(),
      [](int rank, int size) {
        for (const auto type : kReduced)
          for (const auto op : operations(type))
            for (const int64_t count : kSizes) {
              if (count > 1001 && (type != at::kDouble || op != Op::SUM)) continue;
              const at::Tensor all = given(rank, count * size, type);
              const at::Tensor mine = expected(op, size, count * size, type).narrow(0, rank * count, count);
              at::Tensor output = at::empty({count}, all.options());
              dist::reduce_scatter_tensor(output, all, op);
              EXPECT_TRUE(same_bits(output, mine)) << type << ' ' << int{op} << ' ' << count;
              output.zero_();
              dist::reduce_scatter(output, all.view({size, count}).unbind(), op);
              EXPECT_TRUE(same_bits(output, mine)) << type << ' ' << int{op} << ' ' << count;
            }
      },
      kShared);
}

TEST_P(SharedMemory, ResultsMayBePartsOfInputs) {
  spawn_ranks(
      GetParam(),
      [](int rank, int size) {
        constexpr int64_t kCount = 100'000;
        at::Tensor all = at::zeros({size, kCount});
        all[rank].copy_(given(rank, kCount, at::kFloat));
        dist::all_gather_into_tensor(all, all[rank]);
        for (int each = 0; each < size; ++each) EXPECT_TRUE(same_bits(all[each], given(each, kCount, at::kFloat)));
        all = given(rank, kCount * size, at::kFloat).view({size, kCount});
        dist::reduce_scatter_tensor(all[size - 1], all);
        EXPECT_TRUE(
            same_bits(all[size - 1], expected(Op::SUM, size, kCount * size, at::kFloat).view({size, -1})[rank]));
      },
      kShared);
}

TEST(SharedMemoryBits, OfTwoRanksAreThoseOfGloo) {
  spawn_ranks(
      2,
      [](int rank, int) {
        const dist::Group gloo = dist::new_group({0, 1}, dist::kDefaultTimeout, "gloo");
        EXPECT_EQ(dist::get_backend(gloo), "gloo");
        for (const auto type : kReduced)
          for (const auto op : operations(type)) {
            at::Tensor shared = given(rank, 9001, type), other = shared.clone();
            dist::all_reduce(shared, op);
            dist::all_reduce(other, op, gloo);
            EXPECT_TRUE(same_bits(shared, other)) << type << ' ' << int{op};
          }
      },
      kShared);
}

TEST_P(SharedMemory, TheRestGoesOverGloo) {
  spawn_ranks(
      GetParam(),
      [](int rank, int size) {
        at::Tensor tensor = filled(rank + 1);
        dist::reduce(tensor, 0);
        if (rank == 0) EXPECT_TRUE(tensor.equal(filled(size * (size + 1) / 2.0)));
        at::Tensor received = filled(0);
        Tensors parts;
        for (int each = 0; each < size && rank == 1; ++each) parts.push_back(filled(each));
        dist::scatter(received, parts, 1);
        EXPECT_TRUE(received.equal(filled(rank)));
        at::Tensor exchanged = at::empty({size});
        dist::all_to_all_single(exchanged, at::full({size}, static_cast<double>(rank)));
        EXPECT_TRUE(exchanged.equal(at::arange(size, at::kFloat)));
        if (rank == 0) dist::send(filled(7), 1);
        if (rank == 1) {
          dist::recv(received, 0);
          EXPECT_TRUE(received.equal(filled(7)));
        }
        at::Tensor dense = at::zeros({4, 2});
        dense[rank] = 1;
        at::Tensor sparse = dense.to_sparse(1);
        dist::all_reduce(sparse);
        EXPECT_EQ(sparse.to_dense().sum().item<float>(), 2 * size);
        dist::monitored_barrier();
        std::vector<std::string> words(static_cast<size_t>(size));
        dist::all_gather_object(words, std::string(static_cast<size_t>(rank + 1), 'x'));
        EXPECT_EQ(words.back(), std::string(static_cast<size_t>(size), 'x'));
      },
      kShared);
}

TEST_P(SharedMemory, SeveralInFlightKeepTheirOrder) {
  spawn_ranks(
      GetParam(),
      [](int rank, int size) {
        std::vector<at::Tensor> tensors;
        std::vector<dist::Work> works;
        for (int i = 0; i < 30; ++i) {
          tensors.push_back(given(rank + i, i % 3 == 0 ? 100'000 : 10, at::kDouble));
          works.push_back(i % 5 == 4 ? dist::broadcast(tensors.back(), 0, {}, true)
                                     : dist::all_reduce(tensors.back(), Op::SUM, {}, true));
          if (i % 7 == 6) dist::barrier();  // runs on this thread, after those before it
        }
        for (int i = 29; i >= 0; --i) {
          const auto index = static_cast<size_t>(i);
          works[index].wait();
          at::Tensor right = given(i, tensors[index].numel(), at::kDouble);
          for (int each = 1; each < size && i % 5 != 4; ++each) right += given(each + i, right.numel(), at::kDouble);
          EXPECT_TRUE(same_bits(tensors[index], right)) << i;
        }
      },
      kShared);
}

// A hook of DDP does so: what waits for a collective calls another one, and waits for it.
TEST(SharedMemoryCalls, ACallbackMayWaitForAnotherCollective) {
  spawn_ranks(
      2,
      [](int rank, int) {
        at::Tensor first = filled(rank);
        const auto group = dist::default_group();
        const auto chained = dist::all_reduce(first, Op::SUM, {}, true)
                                 .get_future()
                                 ->then(
                                     [group](c10::ivalue::Future&) -> c10::IValue {
                                       std::vector<at::Tensor> third{filled(2)};
                                       group->allreduce(third)->wait();
                                       return third[0];
                                     },
                                     c10::TensorType::get());
        chained->wait();
        EXPECT_TRUE(chained->value().toTensor().equal(filled(4)));
        EXPECT_TRUE(first.equal(filled(1)));
      },
      kShared);
}

// PowerSGD in Python does so.
TEST(SharedMemoryCalls, ACallbackMayWaitForTheFutureOfAnotherCollective) {
  spawn_ranks(
      2,
      [](int rank, int) {
        const auto group = dist::default_group();
        for (int i = 0; i < 50; ++i) {
          at::Tensor first = filled(rank);
          // Two levels: a callback of what a callback waits for does the same.
          const auto sum_again = [group](int value) {
            std::vector<at::Tensor> tensors{filled(value)};
            return group->allreduce(tensors)->getFuture();
          };
          const auto chained = dist::all_reduce(first, Op::SUM, {}, true)
                                   .get_future()
                                   ->then(
                                       [&](c10::ivalue::Future&) -> c10::IValue {
                                         const auto second = sum_again(2)->then(
                                             [&](c10::ivalue::Future&) -> c10::IValue {
                                               const auto third = sum_again(3);
                                               third->wait();
                                               return third->value();
                                             },
                                             c10::ListType::ofTensors());
                                         second->wait();
                                         return second->value();
                                       },
                                       c10::ListType::ofTensors());
          chained->wait();
          EXPECT_TRUE(chained->value().toTensorVector().at(0).equal(filled(6)));
        }
      },
      kShared);
}

TEST(SharedMemoryCalls, ACallbackMayWaitForTheFutureOfALaterCollective) {
  spawn_ranks(
      2,
      [](int rank, int) {
        for (int i = 0; i < 50; ++i) {
          at::Tensor first = filled(rank), second = filled(rank + 1);
          const auto one = dist::all_reduce(first, Op::SUM, {}, true),
                     two = dist::all_reduce(second, Op::SUM, {}, true);
          const auto later = two.get_future();
          const auto chained = one.get_future()->then(
              [&](c10::ivalue::Future&) -> c10::IValue {
                later->wait();
                return second.clone();
              },
              c10::TensorType::get());
          chained->wait();
          EXPECT_TRUE(chained->value().toTensor().equal(filled(3)));
        }
      },
      kShared);
}

// A recorder, for one, keeps the result before the program can change it.
TEST(SharedMemoryCalls, AWaitReturnsOnceWhatTheFutureHasCalledIsDone) {
  spawn_ranks(
      2,
      [](int rank, int) {
        for (int i = 0; i < 100; ++i) {
          at::Tensor tensor = filled(rank), seen;
          const auto work = dist::all_reduce(tensor, Op::SUM, {}, true);
          work.get_future()->addCallback([&](c10::ivalue::Future&) {
            std::this_thread::yield();
            seen = tensor.clone();
          });
          work.wait();
          tensor.fill_(-1);
          ASSERT_TRUE(seen.defined());
          EXPECT_TRUE(seen.equal(filled(1)));
        }
      },
      kShared);
}

// The thread of the queue is needed, then not because the wait runs the call, then needed again.
TEST(SharedMemoryCalls, AFutureIsCompletedAfterWaitsThatHaveRunTheCalls) {
  spawn_ranks(
      3,
      [](int rank, int) {
        for (int i = 0; i < 300; ++i) {
          at::Tensor tensor = filled(rank);
          dist::all_reduce(tensor, Op::SUM, {}, true).wait();
          EXPECT_TRUE(tensor.equal(filled(3)));
          dist::broadcast(tensor.fill_(rank + i), 0, {}, true)->getFuture()->wait();
          EXPECT_TRUE(tensor.equal(filled(i)));
        }
      },
      kShared);
}

TEST(SharedMemoryCalls, AWaitWithALimitLeavesTheCollectiveGoingOn) {
  spawn_ranks(
      2,
      [](int rank, int) {
        at::Tensor tensor = filled(1);
        if (rank == 0) {
          const dist::Work work = dist::all_reduce(tensor, Op::SUM, {}, true);
          EXPECT_FALSE(work.is_completed());
          EXPECT_THROW(work.wait(std::chrono::milliseconds(20)), dist::TimedOut);
          dist::send(filled(0), 1);
          work.wait();
        } else {
          at::Tensor signal = filled(0);
          dist::recv(signal, 0);
          dist::all_reduce(tensor);
        }
        EXPECT_TRUE(tensor.equal(filled(2)));
      },
      kShared);
}

TEST(SharedMemoryGroups, OfSomeRanksAndAfterRegroup) {
  testing::spawn_processes(
      4,
      [](int rank, int size) {
        const dist::Group pair = dist::new_group({1, 3});
        for (int generation = 1; generation <= 3; ++generation) {
          at::Tensor tensor = given(rank, 100'000, at::kFloat);
          dist::all_reduce(tensor);
          EXPECT_TRUE(same_bits(tensor, expected(Op::SUM, size, 100'000, at::kFloat)));
          if (rank % 2 == 1) {
            tensor = given(rank / 2, 100'000, at::kFloat);
            dist::all_reduce(tensor, Op::SUM, pair);
            EXPECT_TRUE(same_bits(tensor, expected(Op::SUM, 2, 100'000, at::kFloat)));
          }
          if (generation == 2) dist::abort("once");
          meet(dist::default_group()->getStore(), std::to_string(generation), rank, size);
          dist::regroup(generation, RankSet::all(size));
        }
      },
      kShared);
}

// A rank that has sent what the others need may close the group: they find it in the memory.
TEST(SharedMemoryEnds, WhatARankHasSentIsReadAfterItHasLeft) {
  testing::spawn_processes(
      3,
      [](int rank, int size) {
        const auto store = dist::default_group()->getStore()->clone();
        at::Tensor tensor = given(rank, 10'000, at::kFloat);
        if (rank == 0) {
          dist::broadcast(tensor, 0);
          dist::destroy_process_group();
          store->set("rank 0 has left", "yes");
        } else {
          store->wait({"rank 0 has left"});
          dist::broadcast(tensor, 0);
          EXPECT_TRUE(same_bits(tensor, given(0, 10'000, at::kFloat)));
          EXPECT_THAT(caught<dist::PeerLeft>([&] { dist::barrier(); }).what(), HasSubstr("rank 0 left"));
        }
        meet(store, "end", rank, size);
      },
      kShared);
}

TEST(SharedMemoryEnds, ARankThatIsKilledInTheMiddleEndsTheWaitsOfAll) {
  const auto outcomes = run_as_processes(
      4,
      [](int rank, int) {
        at::Tensor large = at::ones({20'000'000});
        if (rank == 2) {
          const WhenInCollective watch(2, [] { ::kill(getpid(), SIGKILL); });
          dist::barrier();
          for (;;) dist::all_reduce(large);
        }
        dist::barrier();
        const auto error = caught<dist::PeerLeft>([&] {
          for (;;) dist::all_reduce(large);
        });
        EXPECT_EQ(error.ranks, RankSet{2});
        EXPECT_THAT(error.what(), HasSubstr("the process has died"));
        // One that ended now would be another dead rank to those that have not looked yet.
        const auto store = dist::default_group()->getStore()->clone();
        store->set("end" + std::to_string(rank), "here");
        store->wait({"end0", "end1", "end3"});
      },
      kShared);
  EXPECT_EQ(outcomes[2].signal, SIGKILL);
  for (const int rank : {0, 1, 3})
    EXPECT_TRUE(outcomes[static_cast<size_t>(rank)].ok()) << outcomes[static_cast<size_t>(rank)];
}

TEST(SharedMemoryEnds, AnAbortEndsTheWaitsOfAll) {
  testing::spawn_processes(
      3,
      [](int rank, int size) {
        const auto context = dist::current_context();
        const auto store = dist::default_group()->getStore()->clone();
        if (rank == 0) {
          const WhenInCollective watch(1, [&] { context->abort("by hand"); });
          EXPECT_THAT(caught<dist::Aborted>([] { dist::all_reduce(filled(1)); }).what(), HasSubstr("by hand"));
        } else if (rank == 1) {
          const auto error = caught<dist::PeerLeft>([] { dist::all_reduce(filled(1)); });
          EXPECT_EQ(error.ranks, RankSet{0});
          EXPECT_THAT(error.what(), HasSubstr("aborted (by hand)"));
        }
        meet(store, "end", rank, size);
      },
      kShared);
}

TEST(SharedMemoryEnds, ATimeLimitNamesTheRanksThatNeverCame) {
  testing::RankOptions options = kShared;
  options.timeout = std::chrono::seconds(2);
  const auto outcomes = run_as_threads(
      3,
      [](int rank, int size) {
        const dist::Store store = dist::default_group()->getStore();
        dist::barrier();
        if (rank == 0) {
          const auto error = caught<dist::TimedOut>([] { dist::all_reduce(at::ones({100'000})); });
          EXPECT_EQ(error.missing, RankSet({1, 2}));
          EXPECT_THAT(error.what(), AllOf(HasSubstr("2 s"), HasSubstr("never called it")));
        }
        meet(store, "end", rank, size);
      },
      options);
  EXPECT_TRUE(outcomes[0].ok()) << outcomes[0];
}

// With comparing turned off nobody has seen it before.
TEST(SharedMemoryEnds, DifferentCallsAreAnErrorAndNoDamage) {
  testing::RankOptions options = kShared;
  options.check_collectives = false;
  spawn_ranks(
      3,
      [](int rank, int) {
        at::Tensor tensor = at::ones({rank == 1 ? 5 : 100'000});
        EXPECT_THROW(dist::all_reduce(tensor), dist::Error);
        EXPECT_EQ(tensor.max().item<float>(), 1);
      },
      options);
}

TEST(SharedMemoryRegion, HasNoNameAndStaysOpenNowhere) {
  testing::spawn_processes(
      2,
      [](int, int) {
        int mapped = 0;
        std::ifstream maps("/proc/self/maps");
        for (std::string line; std::getline(maps, line);)
          if (line.find("memfd:lockstep-group (deleted)") != std::string::npos) ++mapped;
        EXPECT_EQ(mapped, 1);
        for (const auto& each : std::filesystem::directory_iterator("/proc/self/fd")) {
          std::error_code closed;
          EXPECT_EQ(std::filesystem::read_symlink(each, closed).string().find("lockstep-group"), std::string::npos);
        }
      },
      kShared);
}

// No rank waits for another, as on Gloo.
TEST_P(SharedMemory, ACallWithoutElementsWaitsForNobody) {
  spawn_ranks(
      GetParam(),
      [](int rank, int size) {
        if (rank == 0) {
          at::Tensor none = at::empty({0});
          dist::all_reduce(none);
          dist::broadcast(none, size - 1);
          EXPECT_EQ(dist::all_gather(none).size(), static_cast<size_t>(size));
          EXPECT_EQ(dist::gather(none, 0).size(), static_cast<size_t>(size));
          dist::reduce_scatter(none, Tensors(static_cast<size_t>(size), at::empty({0})));
        }
        meet(dist::default_group()->getStore(), "the first has made its calls", rank, size);
        at::Tensor none = at::empty({0});
        if (rank != 0) {
          dist::all_reduce(none);
          dist::broadcast(none, size - 1);
          dist::all_gather(none);
          dist::gather(none, 0);
          dist::reduce_scatter(none, Tensors(static_cast<size_t>(size), at::empty({0})));
        }
        at::Tensor tensor = filled(1);
        dist::all_reduce(tensor);
        EXPECT_TRUE(tensor.equal(filled(size)));
      },
      kShared);
}

/// The memory of two ranks that are this process.
std::array<std::shared_ptr<dist::SharedRegion>, 2> pair_of_regions() {
  const auto made = dist::SharedRegion::make(0, 2);
  return {made, dist::SharedRegion::open(made->address(), 1, 2)};
}
std::chrono::steady_clock::time_point in(std::chrono::milliseconds time) {
  return std::chrono::steady_clock::now() + time;
}

TEST(SharedMemoryRounds, BeginAgainAfterTheLargestNumber) {
  constexpr uint32_t kBefore = 0xFFFF'FFFE;
  const auto regions = pair_of_regions();
  for (const auto& region : regions)
    for (const auto stage : {dist::SharedRegion::Stage::written, dist::SharedRegion::Stage::done})
      for (const uint32_t round : {0x2000'0000U - 1, 0x3FFF'FFFEU, kBefore}) region->post(stage, round);
  dist::SharedExchange sends(regions[0], kBefore), receives(regions[1], kBefore);
  double value = 0;
  for (double each = 1; each <= 2; ++each) sends.broadcast(&(value = each), sizeof value, 0, in(kFar));
  // Nobody has read the first of them.
  EXPECT_THROW(sends.broadcast(&value, sizeof value, 0, in(std::chrono::milliseconds(20))), dist::SharedMemoryError);
  for (double each = 1; each <= 2; ++each) {
    receives.broadcast(&value, sizeof value, 0, in(kFar));
    EXPECT_EQ(value, each);
  }
}

// One that stays behind would look new after half of the numbers.
TEST(SharedMemoryRounds, BothCountersOfARankComeToEachOfThem) {
  const auto regions = pair_of_regions();
  const auto expect_all_at = [&](uint32_t round) {
    for (const auto stage : {dist::SharedRegion::Stage::written, dist::SharedRegion::Stage::done})
      for (const int peer : {0, 1})
        EXPECT_NO_THROW(
            regions[static_cast<size_t>(1 - peer)]->wait(stage, peer, round, 0, in(std::chrono::milliseconds(0))));
  };
  dist::SharedExchange root(regions[0]), other(regions[1]);
  double value = 1, first = 0, second = 0;
  root.broadcast(&value, sizeof value, 0, in(kFar));
  other.broadcast(&value, sizeof value, 0, in(kFar));
  expect_all_at(1);
  other.gather({}, &value, sizeof value, 0, in(kFar));
  void* const gathered[] = {&first, &second};
  root.gather(gathered, &value, sizeof value, 0, in(kFar));
  expect_all_at(2);
}

using Connectors = std::vector<std::unique_ptr<dist::BackendConnector>>;

/// Connects ranks that are threads of this process, where `change` has changed what the first announces.
std::vector<c10::intrusive_ptr<c10d::Backend>> connect(
    Connectors& connectors, int size, const std::function<void(nlohmann::json&)>& change = {},
    const std::vector<std::shared_ptr<dist::log_layout::Group>>& logs = {}) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<int> ranks;
  for (int rank = 0; rank < size; ++rank) ranks.push_back(rank);
  std::vector<std::string> announced;
  for (const int rank : ranks) {
    connectors.push_back(dist::find_backend("shared_memory")
                             .factory({.name = "some",
                                       .group_rank = rank,
                                       .ranks = ranks,
                                       .timeout = std::chrono::minutes(1),
                                       .log = logs.empty() ? nullptr : logs[static_cast<size_t>(rank)]}));
    announced.push_back(connectors.back()->announcement());
  }
  if (change) {
    nlohmann::json first = nlohmann::json::parse(announced[0]);
    change(first);
    announced[0] = first.dump();
  }
  std::vector<c10::intrusive_ptr<c10d::Backend>> connected(ranks.size());
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < ranks.size(); ++rank)
    threads.emplace_back([&, rank] {
      const auto own = c10::make_intrusive<c10d::PrefixStore>("some", store);
      connected[rank] = connectors[rank]->connect(own, announced, std::chrono::minutes(1));
      connected[rank]->barrier({})->wait();
    });
  for (std::thread& thread : threads) thread.join();
  return connected;
}

// It ends its own waits, and not those of ranks that can go on without it.
TEST(SharedMemoryEnds, ARankThatClosesWhileItsCallIsQueuedEndsNoWaitOfOthers) {
  Connectors connectors;
  auto backends = connect(connectors, 3);
  at::Tensor tensors[] = {filled(0), filled(1), filled(2)};
  c10d::BroadcastOptions from_1;
  from_1.rootRank = 1;
  from_1.asyncOp = true;
  const auto begin = [&](size_t rank) {
    std::vector<at::Tensor> own{tensors[rank]};
    return backends[rank]->broadcast(own, from_1);
  };
  const auto first = begin(0);
  EXPECT_FALSE(first->isCompleted());
  backends[0].reset();
  EXPECT_THROW(first->wait(), dist::SharedMemoryError);
  connectors[0]->close();
  const auto last = begin(2);
  EXPECT_THROW(last->wait(std::chrono::milliseconds(20)), std::exception);  // it waits for rank 1
  begin(1)->wait();
  EXPECT_NO_THROW(last->wait());
  EXPECT_TRUE(tensors[2].equal(filled(1)));
}

// The log says so: a hang is explained by it.
TEST(SharedMemoryRegion, SaysForWhomARankSleeps) {
  namespace log = dist::log_layout;
  std::vector<std::shared_ptr<log::Group>> logs;
  for (int rank = 0; rank < 3; ++rank) {
    logs.push_back(std::make_shared<log::Group>());
    logs.back()->shared_wait = log::kNoSharedMemory;
  }
  Connectors connectors;
  const auto backends = connect(connectors, 3, {}, logs);
  for (const auto& each : logs) EXPECT_EQ(each->shared_wait, log::kNoSharedWait);
  const auto begin = [&](size_t rank) {
    ++logs[rank]->last_entered;
    c10d::BroadcastOptions options;
    options.asyncOp = true;
    std::vector<at::Tensor> own{filled(0)};
    return backends[rank]->broadcast(own, options);
  };
  std::vector<c10::intrusive_ptr<c10d::Work>> works;
  for (int i = 0; i < 3; ++i) works.push_back(begin(0));  // the third waits until all have read the first
  for (int i = 0; i < 3; ++i) works.push_back(begin(1));
  EXPECT_FALSE(works[2]->isCompleted());
  while (logs[0]->shared_wait != log::shared_wait(1, 2)) std::this_thread::yield();
  EXPECT_FALSE(works[2]->isCompleted());
  for (int i = 0; i < 3; ++i) works.push_back(begin(2));
  for (const auto& work : works) work->wait();
  EXPECT_EQ(logs[0]->shared_wait, log::kNoSharedWait);
}

/// The name of the backend that each of two ranks gets where `change` has changed what the first announces.
std::vector<std::string> backends(const std::function<void(nlohmann::json&)>& change) {
  Connectors connectors;
  std::vector<std::string> names;
  for (const auto& each : connect(connectors, 2, change)) names.push_back(each->getBackendName());
  return names;
}

TEST(SharedMemoryRegion, AllUseGlooWhereOneCanNotMapIt) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(backends([](nlohmann::json&) {}), (Names{"shared_memory", "shared_memory"}));
  EXPECT_EQ(backends([](nlohmann::json& first) { first["memory"] = "/proc/self/exe 1 2"; }), (Names{"gloo", "gloo"}));
  EXPECT_EQ(backends([](nlohmann::json& first) { first["memory"] = std::string(first["memory"]) + "0"; }),
            (Names{"gloo", "gloo"}));
  EXPECT_EQ(backends([](nlohmann::json& first) { first["machine"] = "another"; }), (Names{"gloo", "gloo"}));
  EXPECT_EQ(backends([](nlohmann::json& first) {
              first.erase("memory");
              first["problem"] = "no memory";
            }),
            (Names{"gloo", "gloo"}));
}

}  // namespace
}  // namespace lockstep
