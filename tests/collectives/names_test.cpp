// The names that a port of a Python program uses besides the collectives: what a Work can be asked, messages in
// batches, lists of objects, groups in numbers, tensors in one operation, and the questions.
#include <gmock/gmock.h>

#include <cstdlib>

#include "collectives/dist.h"
#include "collectives/log/collective_log.h"
#include "collectives/rank_context.h"
#include "tests/collectives/tensors.h"
#include "tests/support/argument_error.h"
#include "tests/support/spawn_ranks.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using testing::argument_error;
using ::testing::HasSubstr;
using testing::spawn_ranks;

TEST(Names, WhatAWorkCanBeAsked) {
  spawn_ranks(2, [](int rank, int) {
    at::Tensor tensor = filled(rank + 1).t();  // not contiguous: the result comes back from a copy
    const dist::Work work = dist::all_reduce(tensor, dist::ReduceOp::AVG, {}, true);
    const auto future = work.get_future();
    future->wait();
    EXPECT_TRUE(tensor.equal(filled(1.5).t()));
    EXPECT_TRUE(future->value().toTensorVector().at(0).is_same(tensor));
    work.wait();
    EXPECT_TRUE(work.is_completed() && work.is_success());
    EXPECT_EQ(work.exception(), nullptr);
    ASSERT_EQ(work.result().size(), 1u);
    EXPECT_TRUE(work.result()[0].is_same(tensor));
    work.synchronize();

    Tensors list(2);
    const dist::Work gathered = dist::all_gather(list, filled(rank), {}, true);
    const auto doubled = gathered.get_future()->then(
        [](c10::ivalue::Future& done) -> c10::IValue { return done.value().toTensorVector().at(1) * 2; },
        c10::TensorType::get());
    doubled->wait();
    EXPECT_TRUE(doubled->value().toTensor().equal(filled(2)));
    EXPECT_EQ(gathered.result().size(), 2u);

    at::Tensor received = filled(0);
    if (rank == 0) {
      const dist::Work sent = dist::isend(filled(5), 1);
      sent.get_future()->wait();
      EXPECT_TRUE(sent.is_completed());
      sent.wait();
    } else {
      const dist::Work arriving = dist::irecv(received, 0);
      const auto done = arriving.get_future();
      done->wait();
      EXPECT_TRUE(done->value().toTensorVector().at(0).equal(filled(5)));
      EXPECT_TRUE(arriving.result().at(0).is_same(received));
      EXPECT_EQ(arriving.source_rank(), 0);
    }
    dist::barrier();
    EXPECT_THAT(argument_error([] { dist::Work().get_future(); }), HasSubstr("get_future: this is no work"));
    EXPECT_THAT(argument_error([] { dist::Work().exception(); }), HasSubstr("default-constructed"));
  });
}

TEST(Names, ExceptionOfAWork) {
  const auto outcomes = testing::run_as_threads(2, [](int rank, int) {
    at::Tensor tensor = filled(1);
    const dist::Work work = dist::irecv(tensor, 1 - rank);
    EXPECT_FALSE(work.is_completed());
    EXPECT_EQ(work.exception(), nullptr);
    EXPECT_THROW(work.result(), dist::Error);
    dist::barrier();
    dist::abort("to see what a work says");
    EXPECT_THROW(work.wait(), dist::Aborted);
    EXPECT_TRUE(work.is_completed());
    EXPECT_FALSE(work.is_success());
    ASSERT_NE(work.exception(), nullptr);
    EXPECT_THROW(std::rethrow_exception(work.exception()), dist::Aborted);
    EXPECT_THROW(work.result(), dist::Aborted);
    EXPECT_THROW(work.wait(), dist::Aborted);
  });
  for (const auto& outcome : outcomes) EXPECT_TRUE(outcome.ok()) << outcome;
}

TEST(Names, MessagesInABatch) {
  spawn_ranks(3, [](int rank, int size) {
    const int next = (rank + 1) % size, previous = (rank + size - 1) % size;
    at::Tensor received = filled(0), tagged = filled(0).t();
    const auto works = dist::batch_isend_irecv({dist::P2POp(dist::irecv, received, previous),
                                                dist::P2POp(dist::irecv, tagged, previous, {}, 7),
                                                dist::P2POp(dist::isend, filled(10 + rank).t(), next, {}, 7),
                                                dist::P2POp(dist::isend, filled(rank), dist::group_peer(next))});
    ASSERT_EQ(works.size(), 4u);
    for (const dist::Work& work : works) work.wait();
    EXPECT_TRUE(received.equal(filled(previous)));
    EXPECT_TRUE(tagged.equal(filled(10 + previous).t()));
    // Nothing is begun when one of them is wrong.
    EXPECT_THAT(
        argument_error([&] {
          dist::batch_isend_irecv({dist::P2POp(dist::isend, filled(1), next), dist::P2POp(dist::irecv, received, 9)});
        }),
        AllOf(HasSubstr("batch_isend_irecv"), HasSubstr("src = 9")));
    EXPECT_THAT(argument_error([] { dist::batch_isend_irecv({}); }), HasSubstr("empty"));
    const dist::Group other = dist::new_group();
    EXPECT_THAT(argument_error([&] {
                  dist::batch_isend_irecv(
                      {dist::P2POp(dist::isend, filled(1), next), dist::P2POp(dist::irecv, received, previous, other)});
                }),
                HasSubstr("several groups"));
    dist::barrier();
  });
}

TEST(Names, RanksOfTheGroupItself) {
  spawn_ranks(3, [](int rank, int) {
    const dist::Group group = dist::new_group({1, 2});
    if (rank == 0) return;
    at::Tensor tensor = filled(rank);
    dist::broadcast(tensor, dist::group_src(1), group);
    EXPECT_TRUE(tensor.equal(filled(2)));
    tensor = filled(rank);
    dist::reduce(tensor, dist::group_dst(0), dist::ReduceOp::SUM, group);
    if (rank == 1) {
      EXPECT_TRUE(tensor.equal(filled(3)));
    }
    const auto gathered = dist::gather(filled(rank), dist::group_dst(1), group);
    EXPECT_EQ(gathered.size(), rank == 2 ? 2u : 0u);
    dist::scatter(tensor, rank == 1 ? Tensors{filled(7), filled(8)} : Tensors(), dist::group_src(0), group);
    EXPECT_TRUE(tensor.equal(filled(6 + rank)));
    if (rank == 1) dist::send(filled(9), dist::group_dst(1), group);
    if (rank == 2) {
      EXPECT_EQ(dist::recv(tensor, dist::group_src(0), group), 1);
    }
    EXPECT_THAT(argument_error([&] { dist::broadcast(tensor, 0, group); }), HasSubstr("dist::group_src(r)"));
    EXPECT_EQ(dist::gather_object(rank, dist::group_dst(0), group).size(), rank == 1 ? 2u : 0u);
  });
}

TEST(Names, ListsOfObjects) {
  spawn_ranks(3, [](int rank, int size) {
    std::vector<std::string> mine(1);
    dist::scatter_object_list(
        mine, rank == 1 ? std::vector<std::string>{"a", std::string(300, 'b'), ""} : std::vector<std::string>(), 1);
    EXPECT_EQ(mine[0], rank == 0 ? "a" : rank == 1 ? std::string(300, 'b') : "");
    std::vector<nlohmann::json> list =
        rank == 0 ? std::vector<nlohmann::json>{1, "two", {3.5, nullptr}} : std::vector<nlohmann::json>(3);
    if (rank == 0) dist::send_object_list(list, 2);
    if (rank == 2) {
      EXPECT_EQ(dist::recv_object_list(list), 0);  // from any rank
      EXPECT_EQ(list[2][0], 3.5);
      dist::send_object_list(std::vector<int>{4, 5}, 1);
    }
    std::vector<int> numbers(2);
    if (rank == 1) {
      EXPECT_EQ(dist::recv_object_list(numbers, 2), 2);
      EXPECT_EQ(numbers, (std::vector<int>{4, 5}));
    }
    std::vector<int> all(rank == 0 ? 3 : 0);
    dist::gather_object(10 * rank, all, 0);
    EXPECT_EQ(all, rank == 0 ? (std::vector<int>{0, 10, 20}) : std::vector<int>());
    // Wrong ones, and the group lives.
    std::vector<int> wrong(7), none;
    EXPECT_THAT(argument_error([&] { dist::gather_object(1, wrong, rank); }), HasSubstr("object_gather_list"));
    EXPECT_THAT(argument_error([&] { dist::gather_object(1, wrong, (rank + 1) % size); }), HasSubstr("other than dst"));
    EXPECT_THAT(argument_error([&] { dist::scatter_object_list(none, {}, 0); }), HasSubstr("output_list"));
    EXPECT_THAT(argument_error([&] { dist::scatter_object_list(wrong, wrong, rank); }), HasSubstr("input_list"));
    EXPECT_THAT(argument_error([&] { dist::send_object_list(wrong, rank); }), HasSubstr("this rank itself"));
    EXPECT_THAT(argument_error([&] { dist::all_gather_object(wrong, 1); }), HasSubstr("object_list has 7"));
    // A value that is of another type where it arrives.
    try {
      if (rank == 0)
        dist::all_gather_object(std::string("text"));
      else
        dist::all_gather_object(1);
      ADD_FAILURE() << "no error on rank " << rank;
    } catch (const dist::Error& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("all_gather_object"), HasSubstr("no value of the type")));
    }
    dist::barrier();
  });
}

TEST(Names, ObjectCollectivesAreLoggedByTheirNames) {
  spawn_ranks(2, [](int rank, int) {
    dist::all_gather_object(rank);
    dist::gather_object(std::string("x"), 1);
    std::vector<int> list{1};
    dist::broadcast_object_list(list);
    dist::scatter_object_list(list, rank == 0 ? std::vector<int>{1, 2} : std::vector<int>(), 0);
    if (rank == 0) dist::send_object_list(list, 1);
    if (rank == 1) dist::recv_object_list(list, 0);
    std::vector<std::string> seen;
    for (const auto& record : dist::CollectiveLogReader(dist::current_context()->log()->mapping()).last(10)) {
      seen.push_back(describe(record));
      EXPECT_EQ(record.state, dist::CollectiveState::done);
      EXPECT_GT(record.call_site, 0u);
    }
    EXPECT_EQ(seen, (std::vector<std::string>{"all_gather_object", "gather_object root 1",
                                              "broadcast_object_list root 0", "scatter_object_list root 0",
                                              rank == 0 ? "send_object_list to 1" : "recv_object_list from 0"}));
  });
}

TEST(Names, ObjectCollectivesThatDoNotFitTogether) {
  const auto outcomes = testing::run_as_threads(2, [](int rank, int) {
    if (rank == 0)
      dist::all_gather_object(1);
    else
      dist::barrier();
  });
  for (const auto& outcome : outcomes) {
    EXPECT_EQ(outcome.type, "lockstep::dist::CollectiveMismatch");
    EXPECT_THAT(outcome.error, HasSubstr("rank 0 called all_gather_object as #1 of group default, rank 1 barrier"));
  }
}

TEST(Names, GroupsInNumbers) {
  spawn_ranks(4, [](int rank, int) {
    const auto [mine, all] = dist::new_subgroups(2);
    ASSERT_EQ(all.size(), 2u);
    EXPECT_EQ(dist::get_process_group_ranks(mine), rank < 2 ? (std::vector<int>{0, 1}) : (std::vector<int>{2, 3}));
    EXPECT_EQ(dist::get_rank(all[rank < 2 ? 1 : 0]), -1);
    at::Tensor tensor = filled(rank);
    dist::all_reduce(tensor, dist::ReduceOp::SUM, mine);
    EXPECT_TRUE(tensor.equal(filled(rank < 2 ? 1 : 5)));

    const auto [listed, both] = dist::new_subgroups_by_enumeration({{0, 3}, {2}});
    EXPECT_EQ(both.size(), 2u);
    EXPECT_EQ(dist::get_rank(listed), rank == 1 ? -1 : rank == 3 ? 1 : 0);

    const dist::Group parent = dist::new_group({1, 2, 3});
    const dist::Group split = dist::split_group(parent, {{0, 2}, {1}});  // ranks 1 and 3, and 2
    EXPECT_EQ(dist::get_rank(split), rank == 0 ? -1 : rank == 3 ? 1 : 0);
    if (rank == 1 || rank == 3) {
      EXPECT_EQ(dist::get_process_group_ranks(split), (std::vector<int>{1, 3}));
    }
    EXPECT_EQ(dist::get_pg_count(), 1 + 2 + 2 + 1 + 2);

    EXPECT_THAT(argument_error([] { dist::new_subgroups(3); }), HasSubstr("does not divide"));
    EXPECT_THAT(argument_error([] { dist::new_subgroups(0); }), HasSubstr("group_size = 0"));
    EXPECT_THAT(argument_error([] { dist::new_subgroups_by_enumeration({{0, 1}, {1, 2}}); }),
                HasSubstr("rank 1 is in ranks_per_subgroup_list[0] and in ranks_per_subgroup_list[1]"));
    EXPECT_THAT(argument_error([] { dist::new_subgroups_by_enumeration({{0}, {}}); }), HasSubstr("is empty"));
    EXPECT_THAT(argument_error([&] { dist::split_group(parent, {{3}}); }), HasSubstr("go from 0 to 2"));
    dist::barrier();
  });
}

TEST(Names, SeveralTensorsInOneOperation) {
  spawn_ranks(3, [](int rank, int size) {
    for (const bool async : {false, true}) {
      Tensors tensors{filled(rank), at::full({5}, 10.0 * rank), at::scalar_tensor(rank), at::empty({0})};
      dist::all_reduce_coalesced(tensors, dist::ReduceOp::AVG, {}, async).wait();
      EXPECT_TRUE(tensors[0].equal(filled(1)) && tensors[1].equal(at::full({5}, 10.0)));
      EXPECT_EQ(tensors[2].item<float>(), 1);

      std::vector<Tensors> lists;
      for (int i = 0; i < size; ++i) lists.push_back({at::empty({3, 2}).t(), at::empty({4})});
      dist::all_gather_coalesced(lists, {filled(rank), at::full({4}, rank + 0.5)}, {}, async).wait();
      for (int i = 0; i < size; ++i)
        EXPECT_TRUE(lists[i][0].equal(filled(i)) && lists[i][1].equal(at::full({4}, i + 0.5)));

      Tensors stacked{at::empty({size, 2, 3}), at::empty({size})};
      dist::all_gather_into_tensor_coalesced(stacked, {filled(rank), at::scalar_tensor(rank)}, {}, async).wait();
      EXPECT_TRUE(stacked[0][2].equal(filled(2)) && stacked[1].equal(at::arange(size, at::kFloat)));

      Tensors parts{filled(0), at::scalar_tensor(0.0)};
      dist::reduce_scatter_tensor_coalesced(parts, stacked, dist::ReduceOp::SUM, {}, async).wait();
      EXPECT_TRUE(parts[0].equal(filled(3 * rank)));
      EXPECT_EQ(parts[1].item<float>(), 3 * rank);
    }
  });
}

TEST(Names, Questions) {
  spawn_ranks(2, [](int rank, int) {
    unsetenv("LOCAL_RANK");
    EXPECT_TRUE(dist::is_gloo_available());
    EXPECT_FALSE(dist::is_mpi_available() || dist::is_ucc_available() || dist::is_xccl_available());
    EXPECT_EQ(dist::is_nccl_available(), dist::is_backend_available("nccl"));
    EXPECT_EQ(dist::get_backend_config(), "cpu:gloo");
    EXPECT_EQ(dist::get_default_backend_for_device("cpu"), "gloo");
    EXPECT_THAT(argument_error([] { dist::get_default_backend_for_device("meta"); }), HasSubstr("no backend"));
    EXPECT_EQ(dist::get_node_local_rank(), rank);
    EXPECT_EQ(dist::get_node_local_rank(5), 5);
    EXPECT_TRUE(dist::supports_complex(dist::ReduceOp::SUM));
    EXPECT_FALSE(dist::supports_complex(dist::ReduceOp::MAX));
    EXPECT_EQ(dist::get_debug_level(), dist::DebugLevel::Off);
  });
}

TEST(Names, LocalRankOfTheLauncher) {
  setenv("LOCAL_RANK", "3", 1);
  EXPECT_EQ(dist::get_node_local_rank(5), 3);
  setenv("LOCAL_RANK", "third", 1);
  EXPECT_THAT(argument_error([] { dist::get_node_local_rank(); }), HasSubstr("'third'"));
  unsetenv("LOCAL_RANK");
  const dist::ThreadRank thread_rank;
  EXPECT_THROW(dist::get_node_local_rank(), dist::Error);
  EXPECT_FALSE(dist::is_torchelastic_launched());
  setenv("TORCHELASTIC_RUN_ID", "1", 1);
  EXPECT_TRUE(dist::is_torchelastic_launched());
  unsetenv("TORCHELASTIC_RUN_ID");
}

TEST(Names, TagsAreLogged) {
  spawn_ranks(2, [](int rank, int) {
    at::Tensor tensor = at::ones({2});
    for (const int tag : {5, 5, 0}) {
      if (rank == 0) dist::send(tensor, 1, {}, tag);
      if (rank == 1) dist::recv(tensor, 0, {}, tag);
    }
    const auto records = dist::CollectiveLogReader(dist::current_context()->log()->mapping()).last(3);
    ASSERT_EQ(records.size(), 3u);
    EXPECT_EQ(describe(records[1]), rank == 0 ? "send float32 [2] to 1 tag 5" : "recv float32 [2] from 0 tag 5");
    EXPECT_EQ(records[1].tag_seq, 2);
    EXPECT_EQ(records[2].tag_seq, 1);
    EXPECT_EQ(records[2].seq, 3);
    EXPECT_FALSE(records[1].async);
  });
}

}  // namespace
}  // namespace lockstep
