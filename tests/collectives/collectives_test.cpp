// Every function of dist:: gives what torch.distributed gives, on 1 to 4 ranks.
#include <signal.h>
#include <sys/wait.h>

#include <nlohmann/json.hpp>
#include <numeric>
#include <thread>

#include "collectives/dist.h"
#include "collectives/rank_context.h"
#include "collectives/session_group.h"
#include "tests/collectives/tensors.h"
#include "tests/support/spawn_ranks.h"

namespace lockstep {
namespace {

using testing::spawn_ranks;

class Collectives : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(WorldSize, Collectives, ::testing::Values(1, 2, 3, 4));

TEST_P(Collectives, AllReduceWithEveryOperation) {
  spawn_ranks(GetParam(), [](int rank, int size) {
    const auto reduced = [&](const dist::ReduceOp& op, at::ScalarType type) {
      at::Tensor tensor = filled(rank + 1, type);
      dist::all_reduce(tensor, op);
      return tensor;
    };
    double sum = 0, product = 1;
    int64_t all_and = -1, all_or = 0, all_xor = 0;
    for (int i = 1; i <= size; ++i) {
      sum += i;
      product *= i;
      all_and &= i;
      all_or |= i;
      all_xor ^= i;
    }
    for (const auto type : {at::kFloat, at::kDouble, at::kInt, at::kLong, at::kHalf, at::kBFloat16, at::kByte}) {
      EXPECT_TRUE(reduced(dist::ReduceOp::SUM, type).equal(filled(sum, type))) << type;
      EXPECT_TRUE(reduced(dist::ReduceOp::PRODUCT, type).equal(filled(product, type))) << type;
      EXPECT_TRUE(reduced(dist::ReduceOp::MIN, type).equal(filled(1, type))) << type;
      EXPECT_TRUE(reduced(dist::ReduceOp::MAX, type).equal(filled(size, type))) << type;
    }
    EXPECT_TRUE(reduced(dist::ReduceOp::AVG, at::kDouble).equal(filled(sum / size, at::kDouble)));
    const int average = static_cast<int>(sum) / size;
    EXPECT_TRUE(reduced(dist::ReduceOp::AVG, at::kInt).equal(filled(average, at::kInt)));
    EXPECT_TRUE(reduced(dist::ReduceOp::BAND, at::kLong).equal(filled(static_cast<double>(all_and), at::kLong)));
    EXPECT_TRUE(reduced(dist::ReduceOp::BOR, at::kLong).equal(filled(static_cast<double>(all_or), at::kLong)));
    EXPECT_TRUE(reduced(dist::ReduceOp::BXOR, at::kInt).equal(filled(static_cast<double>(all_xor), at::kInt)));

    at::Tensor complex = at::complex(filled(rank), filled(1));
    dist::all_reduce(complex);
    EXPECT_TRUE(at::real(complex).equal(filled(sum - size)));
    EXPECT_TRUE(at::imag(complex).equal(filled(size)));
  });
}

TEST_P(Collectives, LeafParametersAreReducedInPlaceWithoutAutograd) {
  spawn_ranks(GetParam(), [](int rank, int size) {
    at::Tensor parameter = filled(rank).set_requires_grad(true);
    dist::all_reduce(parameter, dist::ReduceOp::AVG);
    dist::broadcast(parameter, size - 1);
    EXPECT_TRUE(parameter.is_leaf() && parameter.requires_grad());
    EXPECT_TRUE(parameter.detach().equal(filled((size - 1) / 2.0)));
  });
}

TEST_P(Collectives, SparseTensorsAreSummed) {
  spawn_ranks(GetParam(), [](int rank, int size) {
    at::Tensor dense = at::zeros({4, 2});
    dense[rank] = rank + 1;
    at::Tensor sparse = dense.to_sparse(1);
    dist::all_reduce(sparse);
    const at::Tensor result = sparse.to_dense();
    for (int i = 0; i < 4; ++i) EXPECT_EQ(result[i][0].item<float>(), i < size ? i + 1 : 0);
  });
}

TEST_P(Collectives, BroadcastFromEveryRankOfAnyDtype) {
  spawn_ranks(GetParam(), [](int rank, int size) {
    for (int src = 0; src < size; ++src) {
      for (const auto type : {at::kFloat, at::kShort, at::kBool, at::kComplexDouble, at::kUInt16, at::kFloat8_e4m3fn}) {
        at::Tensor tensor = at::ones({3}).mul(rank + 1).to(type);
        dist::broadcast(tensor, src);
        EXPECT_TRUE(tensor.to(at::kComplexDouble).equal(at::ones({3}).mul(src + 1).to(type).to(at::kComplexDouble)))
            << type;
      }
      at::Tensor scalar = at::tensor(int16_t(rank), at::kShort);
      dist::broadcast(scalar, src);
      EXPECT_EQ(scalar.item<int16_t>(), src);
    }
  });
}

TEST_P(Collectives, ReduceToOneRank) {
  spawn_ranks(GetParam(), [](int rank, int size) {
    at::Tensor sum = filled(rank), average = filled(rank);
    dist::reduce(sum, size - 1);
    dist::reduce(average, 0, dist::ReduceOp::AVG);
    if (rank == size - 1) {
      const int total = size * (size - 1) / 2;
      EXPECT_TRUE(sum.equal(filled(total)));
    }
    if (rank == 0) {
      EXPECT_TRUE(average.equal(filled((size - 1) / 2.0)));
    }
  });
}

TEST_P(Collectives, AllGatherIntoListsAndTensors) {
  spawn_ranks(GetParam(), [](int rank, int size) {
    std::vector<at::Tensor> given(static_cast<size_t>(size));
    for (at::Tensor& each : given) each = at::empty({2, 3});
    dist::all_gather(given, filled(rank));
    std::vector<at::Tensor> undefined(static_cast<size_t>(size));
    dist::all_gather(undefined, filled(rank));
    const auto returned = dist::all_gather(filled(rank, at::kShort));
    at::Tensor flat = at::empty({size * 2, 3});
    dist::all_gather_into_tensor(flat, filled(rank));
    ASSERT_EQ(returned.size(), static_cast<size_t>(size));
    for (int i = 0; i < size; ++i) {
      EXPECT_TRUE(given[i].equal(filled(i)));
      EXPECT_TRUE(undefined[i].equal(filled(i)));
      EXPECT_TRUE(returned[i].equal(filled(i, at::kShort)));
      EXPECT_TRUE(flat.narrow(0, 2 * i, 2).equal(filled(i)));
    }
  });
}

TEST_P(Collectives, ReduceScatter) {
  spawn_ranks(GetParam(), [](int rank, int size) {
    std::vector<at::Tensor> inputs;
    for (int i = 0; i < size; ++i) inputs.push_back(filled(10 * rank + i));
    at::Tensor from_list = at::empty({2, 3}), from_tensor = at::empty({2, 3}), average = at::empty({2, 3});
    dist::reduce_scatter(from_list, inputs);
    dist::reduce_scatter_tensor(from_tensor, at::cat(inputs));
    dist::reduce_scatter_tensor(average, at::cat(inputs), dist::ReduceOp::AVG);
    const double sum = 10.0 * size * (size - 1) / 2 + size * rank;
    EXPECT_TRUE(from_list.equal(filled(sum)));
    EXPECT_TRUE(from_tensor.equal(filled(sum)));
    EXPECT_TRUE(average.allclose(filled(sum / size)));
  });
}

TEST_P(Collectives, GatherAndScatter) {
  spawn_ranks(GetParam(), [](int rank, int size) {
    const int root = size - 1;
    std::vector<at::Tensor> list;
    if (rank == root) list.resize(static_cast<size_t>(size));
    dist::gather(filled(rank), list, root);
    const auto returned = dist::gather(filled(rank), root);
    EXPECT_EQ(returned.size(), rank == root ? static_cast<size_t>(size) : 0u);
    for (size_t i = 0; i < returned.size(); ++i) {
      EXPECT_TRUE(list[i].equal(filled(static_cast<double>(i))));
      EXPECT_TRUE(returned[i].equal(filled(static_cast<double>(i))));
    }
    at::Tensor mine = at::empty({2, 3});
    std::vector<at::Tensor> parts;
    for (int i = 0; rank == root && i < size; ++i) parts.push_back(filled(7 * i));
    dist::scatter(mine, parts, root);
    EXPECT_TRUE(mine.equal(filled(7 * rank)));
  });
}

TEST_P(Collectives, AllToAllWithEqualAndUnequalSizes) {
  spawn_ranks(GetParam(), [](int rank, int size) {
    std::vector<at::Tensor> inputs, outputs;
    std::vector<int64_t> input_splits, output_splits;
    for (int i = 0; i < size; ++i) {  // rank r sends r + 1 rows to everyone
      inputs.push_back(at::full({rank + 1, 2}, 10.0 * rank + i));
      outputs.push_back(at::empty({i + 1, 2}));
      input_splits.push_back(rank + 1);
      output_splits.push_back(i + 1);
    }
    dist::all_to_all(outputs, inputs);
    at::Tensor flat = at::empty({std::accumulate(output_splits.begin(), output_splits.end(), int64_t{0}), 2});
    dist::all_to_all_single(flat, at::cat(inputs), output_splits, input_splits);
    EXPECT_TRUE(flat.equal(at::cat(outputs)));
    for (int i = 0; i < size; ++i) EXPECT_TRUE(outputs[i].equal(at::full({i + 1, 2}, 10.0 * i + rank)));
    at::Tensor even = at::empty({size});
    dist::all_to_all_single(even, at::full({size}, static_cast<double>(rank)));
    EXPECT_TRUE(even.equal(at::arange(size, at::kFloat)));
  });
}

TEST_P(Collectives, AsynchronousWork) {
  spawn_ranks(GetParam(), [](int rank, int size) {
    std::vector<at::Tensor> tensors;
    std::vector<dist::Work> works;
    for (int i = 0; i < 20; ++i) {
      tensors.push_back(filled(rank + i));
      works.push_back(dist::all_reduce(tensors.back(), i % 2 ? dist::ReduceOp::AVG : dist::ReduceOp::SUM, {}, true));
    }
    for (int i = 19; i >= 0; --i) {
      works[i].wait();
      EXPECT_TRUE(works[i].is_completed());
      const double sum = size * (size - 1) / 2.0 + size * i;
      EXPECT_TRUE(tensors[i].equal(filled(i % 2 ? sum / size : sum)));
    }
    at::Tensor again = filled(rank);
    dist::Work work = dist::broadcast(again, 0, {}, true);
    work->getFuture()->wait();  // as c10d::Reducer waits
    EXPECT_TRUE(again.equal(filled(0)));
  });
}

struct CountedWarnings : c10::WarningHandler {
  int count = 0;
  void process(const c10::Warning&) override { ++count; }
};

TEST_P(Collectives, AreNothingToAutograd) {
  spawn_ranks(GetParam(), [](int rank, int size) {
    at::Tensor parameter = at::full({3}, rank, at::kFloat).requires_grad_();
    dist::broadcast(parameter, size - 1);
    EXPECT_TRUE(parameter.is_leaf());
    CountedWarnings warnings;
    const c10::WarningUtils::WarningHandlerGuard guard(&warnings);
    (parameter * 2).sum().backward();
    EXPECT_EQ(warnings.count, 0);
    EXPECT_EQ(parameter[0].item<float>(), static_cast<float>(size - 1));
    EXPECT_EQ(parameter.grad()[0].item<float>(), 2);
  });
}

TEST_P(Collectives, SendAndReceiveInARing) {
  spawn_ranks(GetParam(), [](int rank, int size) {
    if (size == 1) return;
    const int next = (rank + 1) % size, previous = (rank + size - 1) % size;
    at::Tensor received = at::empty({2, 3}), any = at::empty({4}, at::kShort);
    dist::Work out = dist::isend(filled(rank), next);
    EXPECT_EQ(dist::recv(received, previous), previous);
    out.wait();
    EXPECT_TRUE(received.equal(filled(previous)));
    out = dist::isend(at::full({4}, rank, at::kShort), next, {}, 5);
    dist::Work in = dist::irecv(any, std::nullopt, {}, 5);
    in.wait();
    out.wait();
    EXPECT_EQ(in.source_rank(), previous);
    EXPECT_EQ(any[0].item<int16_t>(), previous);
  });
}

TEST_P(Collectives, Barriers) {
  spawn_ranks(GetParam(), [](int rank, int size) {
    dist::barrier();
    dist::barrier({}, true).wait();
    dist::monitored_barrier();
  });
}

struct Settings {
  std::string name;
  std::vector<double> rates;
  NLOHMANN_DEFINE_TYPE_INTRUSIVE(Settings, name, rates)
};

TEST_P(Collectives, Objects) {
  spawn_ranks(GetParam(), [](int rank, int size) {
    const auto numbers = dist::all_gather_object(rank * 0.1);
    const auto texts = dist::all_gather_object(std::string(static_cast<size_t>(rank) * 100, 'x'));
    const auto settings = dist::all_gather_object(Settings{"rank", {static_cast<double>(rank)}});
    std::vector<nlohmann::json> list(static_cast<size_t>(size));
    dist::all_gather_object(list, nlohmann::json{{"rank", rank}});
    for (int i = 0; i < size; ++i) {
      EXPECT_EQ(numbers[i], i * 0.1);
      EXPECT_EQ(texts[i].size(), static_cast<size_t>(i) * 100);
      EXPECT_EQ(settings[i].rates, std::vector<double>{static_cast<double>(i)});
      EXPECT_EQ(list[i]["rank"], i);
    }
    std::vector<std::string> words =
        rank == size - 1 ? std::vector<std::string>{"one", "two"} : std::vector<std::string>(2);
    dist::broadcast_object_list(words, size - 1);
    EXPECT_EQ(words, (std::vector<std::string>{"one", "two"}));
    EXPECT_EQ(dist::gather_object(rank, 0).size(), rank == 0 ? static_cast<size_t>(size) : 0u);
  });
}

TEST(Groups, SubGroupsCountRanksOfTheirOwn) {
  spawn_ranks(4, [](int rank, int) {
    const dist::Group odd = dist::new_group({3, 1}), even = dist::new_group({0, 2}), all = dist::new_group();
    const dist::Group mine = rank % 2 ? odd : even, other = rank % 2 ? even : odd;
    EXPECT_EQ(dist::get_world_size(mine), 2);
    EXPECT_EQ(dist::get_rank(mine), rank / 2);
    EXPECT_EQ(dist::get_rank(other), -1);
    EXPECT_EQ(dist::get_world_size(other), -1);
    EXPECT_EQ(dist::get_world_size(all), 4);
    EXPECT_EQ(dist::get_process_group_ranks(odd), (std::vector<int>{1, 3}));
    EXPECT_EQ(dist::get_global_rank(odd, 1), 3);
    EXPECT_EQ(dist::get_group_rank(even, 2), 1);
    EXPECT_EQ(dist::get_group_name(odd), "group_1");
    EXPECT_EQ(dist::get_backend(mine), "gloo");

    at::Tensor tensor = filled(rank);
    dist::all_reduce(tensor, dist::ReduceOp::SUM, mine);
    EXPECT_TRUE(tensor.equal(filled(rank % 2 ? 4 : 2)));
    dist::broadcast(tensor, rank % 2 ? 3 : 2, mine);  // a rank of the default group
    const auto list = dist::all_gather(filled(rank), mine);
    EXPECT_TRUE(list[1].equal(filled(rank % 2 ? 3 : 2)));
    if (rank == 1) dist::send(filled(11), 3, odd);
    if (rank == 3) {
      EXPECT_EQ(dist::recv(tensor, std::nullopt, odd), 1);
    }
    EXPECT_THROW(dist::all_reduce(tensor, dist::ReduceOp::SUM, other), dist::ArgumentError);
    EXPECT_THROW(dist::broadcast(tensor, rank % 2 ? 0 : 1, mine), dist::ArgumentError);
    dist::destroy_process_group(mine);
    EXPECT_THROW(dist::get_rank(mine), dist::ArgumentError);
    dist::all_reduce(tensor, dist::ReduceOp::SUM, all);
    dist::barrier();
  });
}

TEST(Groups, ManyAreMadeAndDestroyed) {
  spawn_ranks(2, [](int, int) {
    for (int i = 0; i < 20; ++i) {
      const dist::Group group = dist::new_group();
      dist::barrier(group);
      dist::destroy_process_group(group);
    }
  });
}

TEST(Groups, OfProcesses) {
  testing::spawn_processes(3, [](int rank, int size) {
    const dist::Group pair = dist::new_group({0, 2});
    at::Tensor tensor = filled(rank + 1);
    if (dist::get_rank(pair) >= 0) dist::all_reduce(tensor, dist::ReduceOp::SUM, pair);
    dist::all_reduce(tensor);
    EXPECT_TRUE(tensor.equal(filled(10))) << tensor;
  });
}

TEST(Groups, AloneWithoutAnyVariable) {
  unsetenv("RANK");
  unsetenv("WORLD_SIZE");
  const dist::ThreadRank thread_rank;
  EXPECT_FALSE(dist::is_initialized());
  dist::init_process_group();
  EXPECT_EQ(dist::get_rank(), 0);
  EXPECT_EQ(dist::get_world_size(), 1);
  at::Tensor tensor = filled(3);
  dist::all_reduce(tensor);
  EXPECT_TRUE(tensor.equal(filled(3)));
  EXPECT_THROW(dist::init_process_group(), dist::Error);
  dist::destroy_process_group();
  EXPECT_FALSE(dist::is_initialized());
  dist::init_process_group("gloo");
}

// The other ranks need this rank's part, although its program never asks for the end.
TEST(Collectives, OneThatNobodyWaitsForEndsBeforeItsGroupIsClosed) {
  spawn_ranks(2, [](int rank, int) {
    at::Tensor large = at::ones({20'000'000}), small = at::ones({1});
    const dist::Work message = rank == 0 ? dist::isend(small, 1) : dist::irecv(small, 0);
    if (rank == 1) message.wait();
    const dist::Store store = dist::default_group()->getStore()->clone();
    const dist::Work work = dist::all_reduce(large, dist::ReduceOp::SUM, {}, true);
    store->set(std::to_string(rank), "has entered");
    store->wait({"0", "1"});
    if (rank == 1) work.wait();
    dist::destroy_process_group();
    EXPECT_EQ(large[-1].item<float>(), 2);
  });
}

// Rank 1 is stopped in the middle of the collective, which both have entered.
TEST(Collectives, AnAbortEndsTheWaitOfAGroupThatIsClosed) {
  const auto outcomes = testing::run_as_processes(
      2,
      [](int rank, int) {
        const dist::Group group = dist::new_group();
        at::Tensor large = at::ones({20'000'000});
        const dist::Work work = dist::all_reduce(large, dist::ReduceOp::SUM, group, true);
        if (rank == 1) ::raise(SIGSTOP);
        const auto context = dist::current_context();
        std::thread aborts([&] {
          while (context->entries().size() > 1) std::this_thread::yield();
          context->abort("enough");
        });
        dist::destroy_process_group(group);
        aborts.join();
      },
      {},
      [](const std::vector<pid_t>& pids) {
        int status = 0;
        ::waitpid(pids[0], &status, 0);
        ::kill(pids[1], SIGKILL);
      });
  EXPECT_TRUE(outcomes[0].ok()) << outcomes[0];
}

}  // namespace
}  // namespace lockstep
