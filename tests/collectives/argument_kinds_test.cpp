// Each argument of a collective either works or is an ArgumentError on the rank that gave it, and the group lives:
// every kind of tensor to every collective, through dist:: and through c10d's own ProcessGroup.
#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>

#include "collectives/dist.h"
#include "collectives/transport/libtorch_version.h"
#include "tests/support/argument_error.h"
#include "tests/support/spawn_ranks.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using testing::argument_error;
using ::testing::HasSubstr;
using testing::spawn_ranks;
using Tensors = std::vector<at::Tensor>;

struct Kind {
  const char* name;
  std::function<at::Tensor()> make;
  bool refused = false;  // by every collective that takes dense tensors
  bool read_only = false;  // can be given, but not written to
};

at::Tensor values() { return at::arange(1, 7, at::kFloat).view({2, 3}); }

std::vector<Kind> kinds() {
  return {
      {"contiguous", [] { return values(); }},
      {"0-d", [] { return at::scalar_tensor(3.0); }},
      {"empty", [] { return at::empty({0}); }},
      {"no rows", [] { return at::empty({0, 3}); }},
      {"no columns", [] { return at::empty({3, 0}); }},
      {"transposed", [] { return values().t(); }},
      {"every other", [] { return at::arange(24, at::kFloat).view({4, 6}).slice(1, 0, 6, 2); }},
      {"channels last", [] { return at::ones({2, 3, 4, 5}).contiguous(at::MemoryFormat::ChannelsLast); }},
      {"ten dimensions", [] { return at::ones({1, 2, 1, 2, 1, 2, 1, 2, 1, 2}); }},
      {"one element in several places", [] { return at::ones({1, 3}).expand({4, 3}); }, false, true},
      {"int16", [] { return values().to(at::kShort); }},
      {"uint16", [] { return values().to(at::kUInt16); }},
      {"uint64", [] { return values().to(at::kUInt64); }},
      {"uint8", [] { return values().to(at::kByte); }},
      {"int64", [] { return values().to(at::kLong); }},
      {"bool", [] { return values() > 2; }},
      {"half", [] { return values().to(at::kHalf); }},
      {"bfloat16", [] { return values().to(at::kBFloat16); }},
      {"float8", [] { return values().to(at::kFloat8_e4m3fn); }},
      {"0-d int16", [] { return at::tensor(int16_t{3}, at::kShort).squeeze(); }},
      {"complex64", [] { return at::complex(values(), values()); }},
      {"complex128", [] { return at::complex(values(), values()).to(at::kComplexDouble); }},
      {"complex32", [] { return at::complex(values(), values()).to(at::kComplexHalf); }},
      {"0-d complex", [] { return at::complex(at::scalar_tensor(1.0), at::scalar_tensor(2.0)); }},
      {"conjugate view", [] { return at::complex(values(), values()).conj(); }, false, true},
      {"negative view", [] { return at::imag(at::complex(values(), values()).conj()); }, false, true},
      {"requires_grad", [] { return values().requires_grad_(); }},
      {"not a leaf", [] { return values().requires_grad_() * 2; }},
      {"inference",
       [] {
         const c10::InferenceMode mode;
         return values().clone();
       }},
#if LOCKSTEP_ATEN_HAS_NAMED_DIMENSIONS
      {"named",
       [] {
         const auto name = [](const char* text) { return at::Dimname::fromSymbol(at::Symbol::dimname(text)); };
         return values().rename(std::vector<at::Dimname>{name("N"), name("C")});
       },
       true},
#endif
      {"undefined", [] { return at::Tensor(); }, true},
      {"meta", [] { return at::empty({2, 3}, at::TensorOptions(at::kMeta)); }, true},
      {"quantized", [] { return at::quantize_per_tensor(values(), 0.1, 10, at::kQInt8); }, true},
      {"csr", [] { return values().to_sparse_csr(); }, true},
      {"nested", [] { return at::_nested_tensor_from_tensor_list({values(), values()}); }, true},
      {"zero tensor", [] { return at::_efficientzerotensor({2, 3}, at::TensorOptions(at::kFloat)); }, true},
      {"released storage",
       [] {
         at::Tensor tensor = values().clone();
         tensor.storage().unsafeGetStorageImpl()->set_nbytes(0);
         return tensor;
       },
       true},
  };
}

Tensors several(const Kind& kind, int count) {
  Tensors list;
  for (int i = 0; i < count; ++i) list.push_back(kind.make());
  return list;
}

/// A tensor of `times` the elements, of the kind's dtype; the kind itself where it has none to multiply.
at::Tensor stacked(const Kind& kind, int times) {
  const at::Tensor one = kind.make();
  if (kind.refused) return one;
  const at::NoGradGuard no_grad;
  return at::zeros({times * one.numel()}, one.options());
}

/// "ok", "ArgumentError", or what went wrong.
template <typename Call>
std::string outcome(Call&& call) {
  try {
    call();
  } catch (const dist::ArgumentError&) {
    return "ArgumentError";
  } catch (const std::exception& error) {
    return error.what();
  }
  return "ok";
}

using NamedCalls = std::vector<std::pair<std::string, std::function<void()>>>;

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

void run_all(const NamedCalls& calls, const Kind& kind, const std::string& op, int rank, int size) {
  for (const auto& [name, call] : calls) {
    // Ranks that only give it wait for the one that has to write to it.
    if (kind.read_only && (name.find("recv") != std::string::npos || name == "gather")) continue;
    const std::string result = outcome(call);
    EXPECT_TRUE(result == "ok" || result == "ArgumentError")
        << name << " " << op << " of " << kind.name << ": " << result;
    if (kind.refused) {
      const bool sends = name.find("send") != std::string::npos || name.find("recv") != std::string::npos;
      EXPECT_TRUE(result == "ArgumentError" || (sends && rank > 1)) << name << " of " << kind.name << ": " << result;
    }
    at::Tensor alive = at::ones({2});
    dist::all_reduce(alive);
    ASSERT_EQ(alive[0].item<float>(), size) << "after " << name << " of " << kind.name;
  }
}

TEST(AnyArgument, WorksOrIsAnArgumentErrorAndTheGroupLives) {
  spawn_ranks(3, [](int rank, int size) {
    for (const Kind& kind : kinds())
      for (const auto op : {dist::ReduceOp::SUM, dist::ReduceOp::AVG, dist::ReduceOp::MAX, dist::ReduceOp::BOR})
        run_all(calls_of_dist(kind, rank, size, op), kind, std::to_string(op), rank, size);
  });
}

TEST(AnyArgument, GivenToC10dItself) {
  spawn_ranks(2, [](int rank, int size) {
    for (const Kind& kind : kinds())
      for (const auto op : {dist::ReduceOp::SUM, dist::ReduceOp::AVG, dist::ReduceOp::BXOR})
        run_all(calls_of_c10d(kind, rank, size, op), kind, std::to_string(op), rank, size);
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

// ---- what works gives the right values -------------------------------------------------------------------------------

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

// ---- what does not is named ------------------------------------------------------------------------------------------

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
    EXPECT_THAT(argument_error([&] { dist::all_reduce(values().to(at::kShort).to_sparse()); }),
                AllOf(HasSubstr("sparse and int16"), HasSubstr("to_dense")));
    EXPECT_THAT(argument_error([&] { dist::all_reduce_coalesced({good, at::ones({4}, at::kLong)}); }),
                HasSubstr("tensors[1] is int64, but tensors[0] is float32"));
    EXPECT_THAT(argument_error([&] { dist::all_reduce_coalesced({}); }), HasSubstr("is empty"));
    dist::barrier();
  });
}

TEST(AnyArgument, PremulSumHasAFactor) {
  spawn_ranks(1, [](int, int) {
    const auto error = argument_error([] { dist::all_reduce(at::ones({2}), dist::ReduceOp::PREMUL_SUM); });
    EXPECT_THAT(error, AllOf(HasSubstr("makeNCCLPreMulSum"), HasSubstr("t.mul_(factor)")));
    EXPECT_THAT(argument_error([] { dist::ReduceOp op(dist::ReduceOp::PREMUL_SUM); }), HasSubstr("PREMUL_SUM"));
    EXPECT_THAT(argument_error([] { dist::all_reduce(at::ones({2}), c10d::makeNCCLPreMulSum(0.5)); }),
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
