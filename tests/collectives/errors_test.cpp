// Bad arguments are errors that name what, where and the fix, before anything is sent; calls that do not fit together
// are caught before data moves, on every rank, with everyone's call in the text.
#include <gmock/gmock.h>

#include "collectives/dist.h"
#include "tests/support/argument_error.h"
#include "tests/support/spawn_ranks.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using testing::argument_error;
using ::testing::HasSubstr;
using testing::Outcome;
using testing::run_as_processes;
using testing::run_as_threads;
using testing::spawn_ranks;

TEST(Arguments, AreCheckedBeforeAnythingIsSent) {
  spawn_ranks(2, [](int rank, int) {
    const at::Tensor good = at::ones({4});
    std::vector<at::Tensor> two(2), three(3);
    EXPECT_THAT(argument_error([&] { dist::all_reduce(at::Tensor()); }),
                AllOf(HasSubstr("all_reduce"), HasSubstr("undefined")));
    EXPECT_THAT(argument_error([&] { dist::broadcast(at::empty({2}, at::TensorOptions(at::kMeta)), 0); }),
                HasSubstr("meta"));
    EXPECT_THAT(argument_error([&] { dist::broadcast(good.to_sparse(), 0); }), HasSubstr("sparse"));
    EXPECT_THAT(argument_error([&] { dist::all_reduce(at::ones({2}, at::kShort)); }), HasSubstr("int16"));
    EXPECT_THAT(argument_error([&] { dist::all_reduce(good, dist::ReduceOp::BAND); }), HasSubstr("BAND"));
    EXPECT_THAT(argument_error([&] { dist::broadcast(good, 2); }), AllOf(HasSubstr("src = 2"), HasSubstr("0-1")));
    EXPECT_THAT(argument_error([&] { dist::broadcast(good, -1); }), HasSubstr("src = -1"));
    EXPECT_THAT(argument_error([&] { dist::all_gather(three, good); }),
                AllOf(HasSubstr("3 elements"), HasSubstr("needs 2")));
    EXPECT_THAT(argument_error([&] {
                  std::vector<at::Tensor> wrong{at::ones({4}), at::ones({5})};
                  dist::all_gather(wrong, good);
                }),
                HasSubstr("tensor_list[1]"));
    EXPECT_THAT(argument_error([&] { dist::all_gather_into_tensor(at::ones({7}), good); }), HasSubstr("needs 8"));
    EXPECT_THAT(argument_error([&] { dist::reduce_scatter(good, {good}); }), HasSubstr("input_list"));
    EXPECT_THAT(argument_error([&] { dist::reduce_scatter_tensor(good, at::ones({9})); }), HasSubstr("needs 8"));
    EXPECT_THAT(argument_error([&] { dist::gather(good, three, rank); }), HasSubstr("gather_list"));
    EXPECT_THAT(argument_error([&] { dist::gather(good, two, 1 - rank); }), HasSubstr("other than dst"));
    EXPECT_THAT(argument_error([&] { dist::scatter(good, {good}, rank); }), HasSubstr("scatter_list"));
    EXPECT_THAT(argument_error([&] { dist::all_to_all({good}, {good}); }), HasSubstr("output_list"));
    EXPECT_THAT(argument_error([&] { dist::all_to_all_single(good, at::ones({3})); }), HasSubstr("3 rows"));
    EXPECT_THAT(argument_error([&] { dist::all_to_all_single(good, good, {2, 2}, {1, 2}); }), HasSubstr("add up to 3"));
    EXPECT_THAT(argument_error([&] { dist::send(good, rank); }), HasSubstr("this rank itself"));
    EXPECT_THAT(argument_error([&] { dist::recv(good, 5); }), HasSubstr("src = 5"));
    EXPECT_THAT(argument_error([&] { dist::new_group({0, 2}); }), HasSubstr("no rank 2"));
    EXPECT_THAT(argument_error([&] { dist::new_group({1, 1}); }), HasSubstr("named twice"));
    EXPECT_THAT(argument_error([&] { dist::new_group({0}, dist::kDefaultTimeout, "nccl"); }), HasSubstr("plug-in"));
    EXPECT_THAT(argument_error([&] { dist::new_group({0}, dist::kDefaultTimeout, "mpi"); }), HasSubstr("gloo"));
    EXPECT_THAT(argument_error([&] { dist::Work().wait(); }), HasSubstr("no work"));
    const dist::Group only_zero = dist::new_group({0});
    if (rank == 1) {
      EXPECT_THAT(argument_error([&] { dist::all_reduce(good, dist::ReduceOp::SUM, only_zero); }),
                  AllOf(HasSubstr("rank 1 is not in group group_1"), HasSubstr("ranks 0")));
    }
    // The group is as good as before.
    dist::all_reduce(good);
    EXPECT_EQ(good[0].item<float>(), 2);
  });
}

TEST(Arguments, WithoutAProcessGroup) {
  const dist::ThreadRank thread_rank;
  EXPECT_THROW(dist::get_rank(), dist::Error);
  EXPECT_THROW(dist::all_reduce(at::ones({1})), dist::Error);
  dist::abort("nothing to abort");
}

struct Variable {
  Variable(const char* name, const char* value) : name(name) { setenv(name, value, 1); }
  ~Variable() { unsetenv(name); }
  const char* name;
};

TEST(Arguments, EnvironmentVariablesAreNamed) {
  const dist::ThreadRank thread_rank;
  {
    const Variable rank("RANK", "one"), size("WORLD_SIZE", "2");
    EXPECT_THAT(argument_error([] { dist::init_process_group(); }), AllOf(HasSubstr("RANK"), HasSubstr("'one'")));
  }
  {
    const Variable rank("RANK", "2"), size("WORLD_SIZE", "2");
    EXPECT_THAT(argument_error([] { dist::init_process_group(); }), HasSubstr("ranks go from 0 to 1"));
  }
  {
    const Variable rank("RANK", "0");
    EXPECT_THAT(argument_error([] { dist::init_process_group(); }), HasSubstr("WORLD_SIZE is not"));
  }
  {
    const Variable rank("RANK", "0"), size("WORLD_SIZE", "1");
    EXPECT_THAT(argument_error([] { dist::init_process_group(); }), HasSubstr("MASTER_ADDR is not"));
    const Variable address("MASTER_ADDR", "127.0.0.1"), port("MASTER_PORT", "70000");
    EXPECT_THAT(argument_error([] { dist::init_process_group(); }),
                AllOf(HasSubstr("MASTER_PORT"), HasSubstr("65535")));
  }
  EXPECT_THAT(argument_error([] { dist::init_process_group("smoke"); }), HasSubstr("'smoke'"));
  EXPECT_THAT(argument_error([] { dist::init_process_group("", "http://x", dist::kDefaultTimeout, 1, 0); }),
              HasSubstr("http://x"));
}

TEST(Arguments, RanksThatDoNotComeAreNamed) {
  testing::RankOptions options;
  options.initialise = false;
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const auto outcomes = run_as_threads(
      2,
      [&](int rank, int) {
        dist::init_process_group(dist::InitOptions{
            .connect_timeout = std::chrono::seconds(2), .world_size = 4, .rank = rank * 2, .store = store});
      },
      options);
  for (const Outcome& outcome : outcomes) EXPECT_THAT(outcome.error, HasSubstr("ranks 1,3 did not come"));
}

TEST(Arguments, TwoProcessesAsOneRank) {
  testing::RankOptions options;
  options.initialise = false;
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const auto outcomes = run_as_threads(
      2,
      [&](int, int) {
        dist::init_process_group(
            dist::InitOptions{.connect_timeout = std::chrono::seconds(2), .world_size = 2, .rank = 1, .store = store});
      },
      options);
  EXPECT_THAT(outcomes[0].error + outcomes[1].error, HasSubstr("two processes came as rank 1"));
}

// ---- calls that do not fit together ------------------------------------------------------------------------------

struct Mismatch {
  const char* name;
  std::function<void(int rank, int size)> call;  // rank 1 does something else
  Verdict verdict;
  const char* text;
};

void PrintTo(const Mismatch& mismatch, std::ostream* out) { *out << mismatch.name; }

const Mismatch kMismatches[] = {
    {"Operation",
     [](int rank, int) {
       const at::Tensor t = at::ones({10});
       rank == 1 ? dist::broadcast(t, 0) : dist::all_reduce(t);
     },
     Verdict::op_mismatch, "rank 1 called broadcast float32 [10] root 0 as #2 of group default"},
    {"Shape", [](int rank, int) { dist::all_reduce(at::ones({rank == 1 ? 1000 : 10})); }, Verdict::shape_mismatch,
     "rank 1 called all_reduce float32 [1000] SUM as #2 of group default"},
    {"Dtype", [](int rank, int) { dist::all_reduce(at::ones({10}, rank == 1 ? at::kDouble : at::kFloat)); },
     Verdict::dtype_mismatch, "rank 1 called all_reduce float64 [10] SUM as #2"},
    {"ReduceOp",
     [](int rank, int) { dist::all_reduce(at::ones({10}), rank == 1 ? dist::ReduceOp::MAX : dist::ReduceOp::SUM); },
     Verdict::op_mismatch, "rank 1 called all_reduce float32 [10] MAX"},
    {"Root", [](int rank, int) { dist::broadcast(at::ones({10}), rank == 1 ? 1 : 0); }, Verdict::op_mismatch,
     "rank 1 called broadcast float32 [10] root 1"},
    {"Barrier", [](int rank, int) { rank == 1 ? dist::barrier() : dist::all_reduce(at::ones({10})); },
     Verdict::op_mismatch, "rank 1 called barrier"},
    {"Asynchronous",
     [](int rank, int) {
       std::vector<dist::Work> works;
       std::vector<at::Tensor> tensors;
       for (int i = 0; i < 3; ++i) {
         tensors.push_back(at::ones({rank == 1 && i == 2 ? 7 : 10}));
         works.push_back(dist::all_reduce(tensors.back(), dist::ReduceOp::SUM, {}, true));
       }
       for (auto& work : works) work.wait();
     },
     Verdict::shape_mismatch, "rank 1 called all_reduce float32 [7] SUM as #4"},
    {"NewGroup",
     [](int rank,
        int) {  // a rank outside the new group does not wait in it, so it hears of the mismatch in the next call
       if (rank != 1) dist::new_group({0, 1});
       dist::barrier();
     },
     Verdict::op_mismatch, "rank 1 called barrier"},
    {"NewGroupRanks",
     [](int rank, int) {
       dist::new_group(rank == 1 ? std::vector<int>{1} : std::vector<int>{0, 1});
       dist::barrier();
     },
     Verdict::shape_mismatch, "rank 1 called new_group [1] as #2 of group default"},
    {"NewGroupOfMembersOnly",
     [](int rank, int size) {  // which goes well among them: they wait for rank 1 in the next one
       if (rank != 1) dist::new_group({0, size - 1});
       dist::new_group();
     },
     Verdict::shape_mismatch, "rank 1 called new_group [0, 1, 2] as #2 of group default"},
    {"Splits",
     [](int rank, int size) {
       std::vector<int64_t> outputs(static_cast<size_t>(size), 2), inputs(static_cast<size_t>(size), 2);
       if (rank == 1) std::swap(inputs[0], inputs.back()), inputs[0] = 1, inputs.back() = 3;
       dist::all_to_all_single(at::ones({2 * size}), at::ones({2 * size}), outputs, inputs);
     },
     Verdict::shape_mismatch, "sizes that do not fit together"},
};

class Mismatches : public ::testing::TestWithParam<Mismatch> {};
INSTANTIATE_TEST_SUITE_P(Kinds, Mismatches, ::testing::ValuesIn(kMismatches),
                         [](const auto& info) { return info.param.name; });

// In each: #1 works, #2 (or later) does not fit, everyone gets the same finding, the state of each rank stays, and
// after a regroup the groups work again.
void run_mismatch(const Mismatch& mismatch, int rank, int size) {
  at::Tensor state = at::full({5}, static_cast<double>(rank));
  dist::barrier();
  bool caught = false;
  try {
    mismatch.call(rank, size);
  } catch (const dist::CollectiveMismatch& error) {
    caught = true;
    if (size > 2) {
      EXPECT_THAT(error.what(), HasSubstr(mismatch.text));
    } else {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("rank 0 called"), HasSubstr(", rank 1 ")));
    }
    EXPECT_EQ(error.finding.inspector, "collectives");
    EXPECT_EQ(error.finding.verdict, mismatch.verdict);
    EXPECT_EQ(error.finding.severity, Severity::fault);
    EXPECT_EQ(error.finding.message, error.what());
    const bool all_to_blame = size == 2 || std::string(mismatch.name) == "Splits";
    EXPECT_EQ(error.finding.ranks, all_to_blame ? RankSet::all(size) : RankSet({1})) << error.what();
    EXPECT_EQ(error.finding.reference_ranks, all_to_blame ? RankSet() : RankSet::all(size) - RankSet({1}));
  }
  // Rank 2 may have had all of a broadcast from rank 0 before rank 1 came with another root.
  EXPECT_TRUE(caught || (rank == 2 && std::string(mismatch.name) == "Root")) << "rank " << rank;
  EXPECT_THROW(dist::barrier(), dist::Error);
  dist::regroup(1, RankSet::all(size));
  dist::all_reduce(state);
  EXPECT_EQ(state[0].item<float>(), size * (size - 1) / 2);
}

TEST_P(Mismatches, OfThreeThreads) {
  spawn_ranks(3, [&](int rank, int size) { run_mismatch(GetParam(), rank, size); });
}

struct MessageMismatch {
  const char* name;
  std::function<void()> send, receive;
  Verdict verdict;
  const char* text;
};
void PrintTo(const MessageMismatch& message, std::ostream* out) { *out << message.name; }

const std::vector<MessageMismatch> kMessages = {
    {"LongerSend", [] { dist::send(at::ones({8}), 1); }, [] { dist::recv(at::zeros({4}), 0); }, Verdict::shape_mismatch,
     "rank 0 called send float32 [8] to 1 in group default, and rank 1 receives that message with recv float32 [4] "
     "from 0"},
    {"ShorterSend", [] { dist::send(at::ones({4}), 1, {}, 3); }, [] { dist::recv(at::zeros({2, 4}), 0, {}, 3); },
     Verdict::shape_mismatch, "recv float32 [2, 4] from 0 tag 3"},
    {"Dtype", [] { dist::isend(at::ones({4}), 1).wait(); }, [] { dist::irecv(at::zeros({4}, at::kInt), 0).wait(); },
     Verdict::dtype_mismatch, "recv int32 [4] from 0"},
    {"NoElements", [] { dist::send(at::ones({0}), 1); }, [] { dist::recv(at::zeros({4}), 0); }, Verdict::shape_mismatch,
     "send float32 [0] to 1"},
    {"ObjectsAndATensor", [] { dist::send_object_list(std::vector<int>{7}, 1); },
     [] { dist::recv(at::zeros({1}, at::kLong), 0); }, Verdict::op_mismatch, "rank 0 called send_object_list to 1"},
};

class MessageMismatches : public ::testing::TestWithParam<MessageMismatch> {};
INSTANTIATE_TEST_SUITE_P(Kinds, MessageMismatches, ::testing::ValuesIn(kMessages),
                         [](const auto& info) { return info.param.name; });

// The messages before it fit; each rank gets the same finding, also one that waits elsewhere in the group.
TEST_P(MessageMismatches, AreErrorsBeforeDataMoves) {
  const MessageMismatch& mismatch = GetParam();
  spawn_ranks(3, [&](int rank, int size) {
    at::Tensor fits = at::full({2, 2}, 5.0);
    if (rank == 0) dist::send(fits, 1), dist::send(fits, 1, {}, 3);
    if (rank == 1) dist::recv(fits.view(-1), 0), dist::recv(fits, 0, {}, 3);
    try {
      if (rank == 0) mismatch.send();
      if (rank == 1) mismatch.receive();
      if (rank == 2) dist::barrier();
      ADD_FAILURE() << "rank " << rank << " has not noticed";
    } catch (const dist::CollectiveMismatch& error) {
      EXPECT_THAT(error.what(), HasSubstr(mismatch.text));
      EXPECT_EQ(error.finding.verdict, mismatch.verdict);
      EXPECT_EQ(error.finding.ranks, (RankSet{0, 1}));
      EXPECT_EQ(error.finding.message, error.what());
    }
    dist::regroup(1, RankSet::all(size));
    if (rank == 0) dist::send(fits, 1);
    if (rank == 1) dist::recv(fits, 0);
  });
}

TEST(MessageMismatches, AreNotLookedForWhereARankReceivesFromAny) {
  spawn_ranks(2, [](int rank, int) {
    at::Tensor small = at::zeros({2}), large = at::zeros({4});
    if (rank == 0) dist::send(small, 1), dist::send(large, 1);
    if (rank == 1) dist::recv(small), dist::recv(large, 0);  // the first from 0, and the second message of 0
  });
}

TEST(Mismatches, OfTwoProcesses) {
  testing::spawn_processes(2, [](int rank, int size) { run_mismatch(kMismatches[1], rank, size); });
}

TEST(Mismatches, AreNotLookedForWhenSwitchedOff) {
  testing::RankOptions options;
  options.check_collectives = false;
  spawn_ranks(2, [](int rank, int) { dist::all_reduce(rank ? at::ones({2, 3}) : at::ones({3, 2})); }, options);
}

TEST(Mismatches, ARankFarAheadIsStillCompared) {
  // Rank 0 sends broadcasts that rank 1 has not come to; the one that differs is long overwritten in the ring of
  // signatures.
  const auto outcomes = run_as_threads(2, [](int rank, int) {
    std::vector<at::Tensor> tensors;
    std::vector<dist::Work> works;
    const dist::Store store = dist::default_group()->getStore();
    if (rank == 1) store->wait({"far ahead"});
    for (int i = 0; i < 300; ++i) {
      tensors.push_back(at::ones({rank == 1 && i == 20 ? 3 : 2}));
      works.push_back(dist::all_reduce(tensors.back(), dist::ReduceOp::SUM, {}, true));
    }
    if (rank == 0) store->set("far ahead", "yes");
    for (auto& work : works) work.wait();
  });
  for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.type, "lockstep::dist::CollectiveMismatch") << outcome;
}

}  // namespace
}  // namespace lockstep
