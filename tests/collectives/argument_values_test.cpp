// Tensors of every layout and dtype that a collective takes give the right values.
#include <gtest/gtest.h>

#include "collectives/dist.h"
#include "tests/collectives/tensors.h"
#include "tests/support/spawn_ranks.h"

namespace lockstep {
namespace {

using testing::spawn_ranks;

TEST(AnyArgument, GatheringWithoutDimensionsAndStacked) {
  spawn_ranks(3, [](int rank, int size) {
    at::Tensor scalars = at::empty({size});
    dist::all_gather_into_tensor(scalars, at::scalar_tensor(rank));
    EXPECT_TRUE(scalars.equal(at::arange(size, at::kFloat)));
    at::Tensor rows = at::empty({size, 5});
    dist::all_gather_into_tensor(rows, at::full({5}, rank, at::kFloat));
    at::Tensor wide = at::empty({5 * size}), batch = at::empty({size, 2, 5});
    dist::all_gather_into_tensor(wide, at::full({5}, rank, at::kFloat));
    dist::all_gather_into_tensor(batch, at::full({2, 5}, rank, at::kFloat));
    for (int i = 0; i < size; ++i) {
      EXPECT_TRUE(rows[i].equal(at::full({5}, i, at::kFloat)));
      EXPECT_TRUE(wide.narrow(0, 5 * i, 5).equal(at::full({5}, i, at::kFloat)));
      EXPECT_TRUE(batch[i].equal(at::full({2, 5}, i, at::kFloat)));
    }
    at::Tensor own = at::empty({5}), scalar = at::scalar_tensor(0.0);
    dist::reduce_scatter_tensor(own, rows);
    EXPECT_TRUE(own.equal(at::full({5}, rank * size, at::kFloat)));
    dist::reduce_scatter_tensor(scalar, scalars, dist::ReduceOp::MAX);
    EXPECT_EQ(scalar.item<float>(), rank);
    const auto listed = dist::all_gather(at::scalar_tensor(rank));
    EXPECT_EQ(listed[1].item<float>(), 1);
  });
}

TEST(AnyArgument, ReduceScatterOfATensorWithEveryOperation) {
  spawn_ranks(3, [](int rank, int size) {
    for (const bool async : {false, true}) {
      at::Tensor own = at::empty({2});
      dist::reduce_scatter_tensor(own, at::full({2 * size}, rank + 1.0), dist::ReduceOp::MAX, {}, async).wait();
      EXPECT_TRUE(own.equal(at::full({2}, static_cast<double>(size))));
      dist::reduce_scatter_tensor(own, at::full({2 * size}, rank + 1.0), dist::ReduceOp::PRODUCT, {}, async).wait();
      EXPECT_TRUE(own.equal(at::full({2}, 6.0)));
    }
  });
}

TEST(AnyArgument, TensorsThatAreNotContiguous) {
  spawn_ranks(2, [](int rank, int size) {
    const auto mine = [&](double value) { return at::full({3, 2}, value).t(); };
    const auto is = [](const at::Tensor& tensor, double value) { return tensor.equal(at::full({2, 3}, value)); };
    for (const bool async : {false, true}) {
      at::Tensor tensor = mine(rank + 1);
      dist::all_reduce(tensor, dist::ReduceOp::AVG, {}, async).wait();
      EXPECT_TRUE(is(tensor, 1.5));
      // Other strides on each rank.
      tensor = rank ? mine(7) : at::full({2, 3}, 4.0);
      dist::all_reduce(tensor, dist::ReduceOp::SUM, {}, async).wait();
      EXPECT_TRUE(is(tensor, 11));
      tensor = mine(rank + 1);
      dist::broadcast(tensor, 1, {}, async).wait();
      EXPECT_TRUE(is(tensor, 2));
      tensor = mine(rank + 1);
      dist::reduce(tensor, 0, dist::ReduceOp::SUM, {}, async).wait();
      if (rank == 0) {
        EXPECT_TRUE(is(tensor, 3));
      }
      Tensors list{mine(0), mine(0)};
      dist::all_gather(list, mine(rank), {}, async).wait();
      EXPECT_TRUE(is(list[0], 0) && is(list[1], 1));
      at::Tensor all = at::empty({3, 4}).t();
      dist::all_gather_into_tensor(all, mine(rank), {}, async).wait();
      EXPECT_TRUE(is(all.narrow(0, 0, 2), 0) && is(all.narrow(0, 2, 2), 1));
      tensor = mine(0);
      dist::reduce_scatter(tensor, {mine(rank), mine(rank + 10)}, dist::ReduceOp::SUM, {}, async).wait();
      EXPECT_TRUE(is(tensor, rank == 0 ? 1 : 21));
      dist::reduce_scatter_tensor(tensor, all, dist::ReduceOp::SUM, {}, async).wait();
      EXPECT_TRUE(is(tensor, 2 * rank));
      Tensors gathered = rank == 1 ? Tensors{mine(0), mine(0)} : Tensors();
      dist::gather(mine(rank + 5), gathered, 1, {}, async).wait();
      if (rank == 1) {
        EXPECT_TRUE(is(gathered[0], 5) && is(gathered[1], 6));
      }
      dist::scatter(tensor, rank == 0 ? Tensors{mine(3), mine(4)} : Tensors(), 0, {}, async).wait();
      EXPECT_TRUE(is(tensor, 3 + rank));
      dist::all_to_all(list, {mine(10 * rank), mine(10 * rank + 1)}, {}, async).wait();
      EXPECT_TRUE(is(list[0], rank) && is(list[1], 10 + rank));
      dist::all_to_all_single(all, at::cat({mine(10 * rank), mine(10 * rank + 1)}).t().contiguous().t(), {}, {}, {},
                              async)
          .wait();
      EXPECT_TRUE(is(all.narrow(0, 0, 2), rank) && is(all.narrow(0, 2, 2), 10 + rank));
      if (rank == 0) dist::send(mine(9), 1);
      if (rank == 1) {
        dist::recv(tensor, 0);
        EXPECT_TRUE(is(tensor, 9));
      }
    }
    EXPECT_EQ(size, 2);
  });
}

TEST(AnyArgument, ViewsThatAreOnlyComputed) {
  spawn_ranks(2, [](int rank, int) {
    const at::Tensor z = at::complex(at::full({3}, rank + 1.0), at::full({3}, 2.0));
    const auto sent = dist::all_gather(z.conj());
    EXPECT_TRUE(sent[1].equal(at::complex(at::full({3}, 2.0), at::full({3}, -2.0))));
    at::Tensor conjugate = z.clone().conj();
    EXPECT_THROW(dist::all_reduce(conjugate), dist::ArgumentError);  // the dispatcher would lose the result
    const auto list = dist::all_gather(at::imag(z.conj()));  // negated when it is read
    EXPECT_TRUE(list[0].equal(at::full({3}, -2.0)));
    at::Tensor plain = at::zeros({3});
    if (rank == 0) dist::send(at::ones({1}).expand({3}), 1);
    if (rank == 1) dist::recv(plain, 0);
    EXPECT_TRUE(plain.equal(at::full({3}, static_cast<double>(rank))));
  });
}

TEST(AnyArgument, BoolsStayBools) {
  spawn_ranks(3, [](int rank, int size) {
    at::Tensor any = at::ones({2}, at::kBool);
    dist::all_reduce(any);
    EXPECT_EQ(any.sum().item<int64_t>(), 2);
    EXPECT_EQ(any.view(at::kByte)[0].item<int>(), 1);
    at::Tensor all = at::full({2}, rank != 1, at::kBool);
    dist::all_reduce(all, dist::ReduceOp::PRODUCT);
    EXPECT_FALSE(all.any().item<bool>());
    at::Tensor own = at::empty({1}, at::kBool);
    dist::reduce_scatter_tensor(own, at::ones({size}, at::kBool));
    EXPECT_EQ(own.view(at::kByte)[0].item<int>(), 1);
  });
}

TEST(AnyArgument, ResultsInWhatIsStillToBeSent) {
  spawn_ranks(2, [](int rank, int) {
    at::Tensor both = at::full({1000}, rank, at::kFloat);
    dist::all_to_all_single(both, both);
    EXPECT_TRUE(both.equal(at::cat({at::zeros({500}), at::ones({500})})));
    at::Tensor parts = at::arange(1000, at::kFloat);
    at::Tensor mine = rank == 0 ? parts.narrow(0, 500, 500) : at::empty({500});
    dist::scatter(mine, rank == 0 ? Tensors{parts.narrow(0, 0, 500), parts.narrow(0, 500, 500)} : Tensors(), 0);
    EXPECT_TRUE(mine.equal(at::arange(500 * rank, 500 * (rank + 1), at::kFloat)));
  });
}

}  // namespace
}  // namespace lockstep
