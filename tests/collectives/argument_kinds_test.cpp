// Every kind of tensor given to every collective of dist::.
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

NamedCalls calls_of_dist(const Kind& kind, int rank, int size, const dist::ReduceOp& op) {
  const bool root = rank == 0;
  const auto only_root = [=](Tensors list) { return root ? std::move(list) : Tensors(); };
  return {
      {"all_reduce", [=] { dist::all_reduce(kind.make(), op); }},
      {"all_reduce, async", [=] { dist::all_reduce(kind.make(), op, {}, true).wait(); }},
      {"broadcast", [=] { dist::broadcast(kind.make(), 0); }},
      {"reduce", [=] { dist::reduce(kind.make(), 0, op); }},
      {"all_gather",
       [=] {
         Tensors list = several(kind, size);
         dist::all_gather(list, kind.make());
       }},
      {"all_gather of one", [=] { dist::all_gather(kind.make()); }},
      {"all_gather_into_tensor", [=] { dist::all_gather_into_tensor(stacked(kind, size), kind.make()); }},
      {"reduce_scatter", [=] { dist::reduce_scatter(kind.make(), several(kind, size), op); }},
      {"reduce_scatter_tensor", [=] { dist::reduce_scatter_tensor(kind.make(), stacked(kind, size), op); }},
      {"reduce_scatter_tensor, async",
       [=] { dist::reduce_scatter_tensor(kind.make(), stacked(kind, size), op, {}, true).wait(); }},
      {"gather",
       [=] {
         Tensors list = only_root(several(kind, size));
         dist::gather(kind.make(), list, 0);
       }},
      {"scatter", [=] { dist::scatter(kind.make(), only_root(several(kind, size)), 0); }},
      {"all_to_all", [=] { dist::all_to_all(several(kind, size), several(kind, size)); }},
      {"all_to_all_single", [=] { dist::all_to_all_single(kind.make(), kind.make()); }},
      {"all_to_all_single, stacked", [=] { dist::all_to_all_single(stacked(kind, size), stacked(kind, size)); }},
      {"all_reduce_coalesced", [=] { dist::all_reduce_coalesced(several(kind, 3), op); }},
      {"all_gather_coalesced",
       [=] { dist::all_gather_coalesced(std::vector<Tensors>(size, several(kind, 0)), several(kind, 0)); }},
      {"all_gather_coalesced, two",
       [=] {
         std::vector<Tensors> lists;
         for (int i = 0; i < size; ++i) lists.push_back(several(kind, 2));
         dist::all_gather_coalesced(lists, several(kind, 2));
       }},
      {"all_gather_into_tensor_coalesced",
       [=] { dist::all_gather_into_tensor_coalesced({stacked(kind, size), stacked(kind, size)}, several(kind, 2)); }},
      {"reduce_scatter_tensor_coalesced",
       [=] {
         dist::reduce_scatter_tensor_coalesced(several(kind, 2), {stacked(kind, size), stacked(kind, size)}, op);
       }},
      {"send and recv",
       [=] {
         if (rank == 0) dist::send(kind.make(), 1, {}, 3);
         if (rank == 1) dist::recv(kind.make(), 0, {}, 3);
       }},
      {"isend and irecv",
       [=] {
         if (rank == 0) dist::isend(kind.make(), 1).wait();
         if (rank == 1) dist::irecv(kind.make()).wait();
       }},
  };
}

TEST(AnyArgument, WorksOrIsAnArgumentErrorAndTheGroupLives) {
  spawn_ranks(3, [](int rank, int size) {
    for (const Kind& kind : kinds())
      for (const auto op : {dist::ReduceOp::SUM, dist::ReduceOp::AVG, dist::ReduceOp::MAX, dist::ReduceOp::BOR})
        run_all(calls_of_dist(kind, rank, size, op), kind, std::to_string(op), rank, size);
  });
}

TEST(AnyArgument, SparseTensorsOfAnyKind) {
  spawn_ranks(2, [](int, int size) {
    for (const auto type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kInt, at::kLong, at::kShort,
                            at::kBool, at::kByte, at::kComplexFloat})
      for (const auto op : {dist::ReduceOp::SUM, dist::ReduceOp::AVG, dist::ReduceOp::MAX}) {
        const Kind kind{"sparse", [=] { return values().to(type).to_sparse(); }};
        run_all({{"all_reduce", [=] { dist::all_reduce(kind.make(), op); }},
                 {"allreduce",
                  [=] {
                    Tensors tensors{kind.make()};
                    dist::default_group()->getDefaultBackend()->allreduce(tensors, {.reduceOp = op})->wait();
                  }}},
                kind, c10::toString(type), 0, size);
      }
    for (const Kind& kind :
         std::vector<Kind>{{"sparse, nothing stored", [] { return at::zeros({2, 3}).to_sparse(); }},
                           {"sparse, no elements", [] { return at::zeros({0, 3}).to_sparse(); }},
                           {"sparse, five dimensions", [] { return at::ones({1, 2, 1, 2, 1}).to_sparse(); }},
                           {"sparse, hybrid", [] { return at::ones({2, 3, 2}).to_sparse(1); }},
                           {"sparse, not coalesced",
                            [] { return at::sparse_coo_tensor(at::zeros({1, 2}, at::kLong), at::ones({2}), {3}); }},
                           {"sparse, requires_grad", [] { return values().to_sparse().requires_grad_(); }}})
      run_all({{"all_reduce", [=] { dist::all_reduce(kind.make()); }},
               {"broadcast", [=] { dist::broadcast(kind.make(), 0); }}},
              kind, "SUM", 0, size);
  });
}

}  // namespace
}  // namespace lockstep
