// Every kind of tensor given to c10d's own ProcessGroup.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "collectives/dist.h"
#include "tests/collectives/argument_kinds.h"
#include "tests/support/spawn_ranks.h"

namespace lockstep {
namespace {

using testing::spawn_ranks;

using namespace argument_kinds;

// As c10d::Reducer and users of c10d call it.
NamedCalls calls_of_c10d(const Kind& kind, int rank, int size, const dist::ReduceOp& op) {
  const bool root = rank == 0;
  const auto backend = dist::default_group()->getDefaultBackend();
  const auto lists = [=](int count) { return std::vector<Tensors>{several(kind, count)}; };
  return {
      {"allreduce",
       [=] {
         Tensors tensors = several(kind, 1);
         backend->allreduce(tensors, {.reduceOp = op})->wait();
       }},
      {"allreduce of nothing",
       [=] {
         Tensors tensors;
         backend->allreduce(tensors)->wait();
       }},
      {"allreduce_coalesced",
       [=] {
         Tensors tensors = several(kind, 2);
         c10d::AllreduceCoalescedOptions options;
         options.reduceOp = op;
         backend->allreduce_coalesced(tensors, options)->wait();
       }},
      {"broadcast",
       [=] {
         Tensors tensors = several(kind, 1);
         backend->broadcast(tensors)->wait();
       }},
      {"broadcast from a root that is not there",
       [=] {
         Tensors tensors = several(kind, 1);
         backend->broadcast(tensors, {.rootRank = 9})->wait();
       }},
      {"reduce",
       [=] {
         Tensors tensors = several(kind, 1);
         backend->reduce(tensors, {.reduceOp = op})->wait();
       }},
      {"allgather",
       [=] {
         auto outputs = lists(size);
         Tensors inputs = several(kind, 1);
         backend->allgather(outputs, inputs)->wait();
       }},
      {"allgather into too few",
       [=] {
         auto outputs = lists(size - 1);
         Tensors inputs = several(kind, 1);
         backend->allgather(outputs, inputs)->wait();
       }},
      {"_allgather_base",
       [=] {
         at::Tensor output = stacked(kind, size), input = kind.make();
         backend->_allgather_base(output, input)->wait();
       }},
      {"gather",
       [=] {
         auto outputs = root ? lists(size) : std::vector<Tensors>();
         Tensors inputs = several(kind, 1);
         backend->gather(outputs, inputs)->wait();
       }},
      {"scatter",
       [=] {
         auto inputs = root ? lists(size) : std::vector<Tensors>();
         Tensors outputs = several(kind, 1);
         backend->scatter(outputs, inputs)->wait();
       }},
      {"reduce_scatter",
       [=] {
         auto inputs = lists(size);
         Tensors outputs = several(kind, 1);
         backend->reduce_scatter(outputs, inputs, {.reduceOp = op})->wait();
       }},
      {"_reduce_scatter_base",
       [=] {
         at::Tensor output = kind.make(), input = stacked(kind, size);
         backend->_reduce_scatter_base(output, input, {.reduceOp = op})->wait();
       }},
      {"alltoall",
       [=] {
         Tensors outputs = several(kind, size), inputs = several(kind, size);
         backend->alltoall(outputs, inputs)->wait();
       }},
      {"alltoall_base",
       [=] {
         at::Tensor output = stacked(kind, size), input = stacked(kind, size);
         std::vector<int64_t> none, wrong{-1};
         backend->alltoall_base(output, input, none, none)->wait();
       }},
      {"alltoall_base with wrong splits",
       [=] {
         at::Tensor output = stacked(kind, size), input = stacked(kind, size);
         std::vector<int64_t> none, wrong{-1};
         backend->alltoall_base(output, input, none, wrong)->wait();
       }},
      {"send with a wrong tag",
       [=] {
         Tensors tensors = several(kind, 1);
         backend->send(tensors, (rank + 1) % size, -1)->wait();
       }},
      {"send to this rank",
       [=] {
         Tensors tensors = several(kind, 1);
         backend->send(tensors, rank, 0)->wait();
       }},
  };
}

TEST(AnyArgument, GivenToC10dItself) {
  spawn_ranks(2, [](int rank, int size) {
    for (const Kind& kind : kinds())
      for (const auto op : {dist::ReduceOp::SUM, dist::ReduceOp::AVG, dist::ReduceOp::BXOR})
        run_all(calls_of_c10d(kind, rank, size, op), kind, std::to_string(op), rank, size);
  });
}

}  // namespace
}  // namespace lockstep
