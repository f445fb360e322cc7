// data on ranks that are threads: which ways of dividing samples are right, and what is found in those that are not.
#include "inspectors/data/data.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <numeric>
#include <random>

#include "tests/support/spawn_ranks.h"

namespace lockstep::inspect {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::spawn_ranks;
namespace samplers = torch::data::samplers;

DataOptions data_options() { return DataOptions().name("indices").deadline(std::chrono::minutes(5)); }

/// What PyTorch's DistributedSampler gives: a permutation, padded with its beginning, dealt out.
std::vector<int64_t> dealt(int64_t size, int rank, int world_size, int64_t seed) {
  std::vector<int64_t> all(static_cast<size_t>(size));
  std::iota(all.begin(), all.end(), 0);
  std::mt19937_64 random(static_cast<uint64_t>(seed));
  std::shuffle(all.begin(), all.end(), random);
  for (int64_t i = 0; all.size() % static_cast<size_t>(world_size) != 0; ++i)
    all.push_back(all[static_cast<size_t>(i)]);
  std::vector<int64_t> mine;
  for (size_t i = static_cast<size_t>(rank); i < all.size(); i += static_cast<size_t>(world_size))
    mine.push_back(all[i]);
  return mine;
}

std::vector<int64_t> range(int64_t begin, int64_t end, int64_t step = 1) {
  std::vector<int64_t> result;
  for (int64_t i = begin; i < end; i += step) result.push_back(i);
  return result;
}

std::vector<std::string> verdicts(const Report& report) {
  std::vector<std::string> result;
  for (const Finding& each : report.findings)
    result.push_back(std::string(to_string(each.verdict)) + " " +
                     (each.kind ? std::string(to_string(*each.kind)) : "-"));
  return result;
}

const Finding& only_fault(const Report& report) {
  const Finding* fault = nullptr;
  int count = 0;
  for (const Finding& each : report.findings) {
    if (each.severity != Severity::fault) continue;
    fault = &each;
    ++count;
  }
  EXPECT_EQ(count, 1) << report;
  static const Finding none;
  return fault ? *fault : none;
}

TEST(Data, SharesThatCoverTheDatasetAreOk) {
  spawn_ranks(3, [](int rank, int world_size) {
    const DataReport report = data(range(rank, 300, world_size), data_options().size(300).batch_size(16));
    ASSERT_EQ(report.findings.size(), 1U) << report;
    EXPECT_EQ(report.findings[0].verdict, Verdict::ok);
    EXPECT_EQ(report.findings[0].inspector, "data");
    EXPECT_EQ(report.findings[0].object, "indices");
    EXPECT_EQ(report.findings[0].message, "300 samples on ranks 0-2: 100 each in 7 batches, none twice");
    EXPECT_THAT(report.samples, ElementsAre(100, 100, 100));
    EXPECT_THAT(report.batches, ElementsAre(7, 7, 7));
    EXPECT_EQ(report.omitted, 0);
  });
}

TEST(Data, PaddingOfADistributedSamplerIsOk) {
  spawn_ranks(4, [](int rank, int world_size) {
    for (const int64_t size : {101, 102, 3, 5}) {
      const DataReport report = data(dealt(size, rank, world_size, 7), data_options().size(size));
      ASSERT_EQ(report.findings.size(), 1U) << report;
      EXPECT_EQ(report.findings[0].verdict, Verdict::ok);
      EXPECT_EQ(report.padding, (size + 3) / 4 * 4 - size);
      EXPECT_THAT(report.findings[0].message, HasSubstr("repeated so that all ranks have the same number"));
    }
    std::vector<int64_t> whole_batches = dealt(101, rank, world_size, 9);  // 26 of them
    for (size_t i = 0; whole_batches.size() < 32; ++i) whole_batches.push_back(whole_batches[i]);
    EXPECT_TRUE(data(whole_batches, data_options().size(101).batch_size(16)).ok());
    const DataReport without_size = data(dealt(101, rank, world_size, 8), data_options());
    EXPECT_TRUE(without_size.ok());
    EXPECT_THAT(without_size.findings[0].message, HasSubstr("size is not known"));
  });
}

TEST(Data, LibTorchSamplersAreReadWithoutMovingThem) {
  spawn_ranks(2, [](int rank, int world_size) {
    samplers::DistributedRandomSampler sampler(101, static_cast<size_t>(world_size), static_cast<size_t>(rank));
    sampler.next(10);
    const DataReport report = data(sampler, data_options().size(101));
    EXPECT_TRUE(report.ok()) << report;
    EXPECT_EQ(report.padding, 1);
    EXPECT_EQ(sampler.next(1000)->size(), 41U);  // 51 less the 10 that were read
  });
}

TEST(Data, ReadingARandomSamplerDrawsNoNumbers) {
  spawn_ranks(1, [](int, int) {
    torch::manual_seed(5);
    const torch::Tensor expected = torch::rand({8});
    const samplers::RandomSampler sampler(1000);
    torch::manual_seed(5);
    data(sampler, data_options().size(1000));
    EXPECT_TRUE(torch::equal(torch::rand({8}), expected));
  });
}

TEST(Data, TheSameShuffleOnAllRanksIsOneFinding) {
  spawn_ranks(3, [](int, int) {
    const DataReport report = data(dealt(100, 0, 1, 3), data_options().size(100));
    const Finding& found = only_fault(report);
    EXPECT_EQ(found.verdict, Verdict::duplicate_data);
    EXPECT_EQ(found.kind, FindingKind::order);
    EXPECT_EQ(found.ranks, RankSet::all(3));
    EXPECT_THAT(found.message, HasSubstr("ranks 0-2 read the same 100 samples in the same order"));
  });
}

TEST(Data, TwoOfThreeRanksWithTheSameShareAreNamed) {
  spawn_ranks(3, [](int rank, int world_size) {
    const DataReport report = data(range(rank == 2 ? 1 : rank, 300, world_size), data_options().size(300));
    EXPECT_THAT(verdicts(report), ElementsAre("duplicate_data order")) << report;
    EXPECT_EQ(report.findings[0].ranks, (RankSet{1, 2}));
    EXPECT_THAT(report.findings[0].message,
                HasSubstr("; because of that 100 of 300 samples are read by no rank: 2, 5, 8"));
    EXPECT_EQ(report.omitted, 100);
  });
}

TEST(Data, SharesOfDifferentShufflesOverlap) {
  spawn_ranks(2, [](int rank, int world_size) {
    const DataReport report = data(dealt(1000, rank, world_size, rank), data_options().size(1000));
    EXPECT_THAT(verdicts(report), ElementsAre("duplicate_data sample")) << report;
    EXPECT_EQ(report.findings[0].ranks, RankSet::all(2));
    EXPECT_THAT(report.findings[0].message, HasSubstr("different seeds"));
    EXPECT_THAT(report.findings[0].message, HasSubstr("because of that"));
    EXPECT_EQ(report.shared, report.omitted);
  });
}

TEST(Data, EveryRankReadingEverythingInItsOwnOrderIsTold) {
  spawn_ranks(2, [](int rank, int) {
    const DataReport report = data(dealt(50, 0, 1, rank), data_options().size(50));
    EXPECT_THAT(only_fault(report).message, HasSubstr("Every rank reads all of the data"));
  });
}

TEST(Data, UnequalNumbersOfBatchesAreAFaultAndASmallerLastBatchIsNot) {
  spawn_ranks(3, [](int rank, int) {
    const std::vector<int64_t> mine = range(rank * 100, rank * 100 + (rank == 1 ? 90 : 100));
    const Finding unequal = only_fault(data(mine, data_options().batch_size(10)));
    EXPECT_EQ(unequal.verdict, Verdict::uneven_data);
    EXPECT_EQ(unequal.kind, FindingKind::batch);
    EXPECT_EQ(unequal.ranks, RankSet{1});
    EXPECT_EQ(unequal.reference_ranks, (RankSet{0, 2}));
    EXPECT_THAT(unequal.message, HasSubstr("batches: 10 on ranks 0,2, 9 on rank 1; in batch 10"));

    EXPECT_TRUE(data(mine, data_options().batch_size(64)).ok());
    EXPECT_TRUE(data(mine, data_options().batch_size(10).join(true)).ok());
    EXPECT_EQ(only_fault(data(mine, data_options())).kind, FindingKind::sample);
  });
}

std::vector<std::vector<int64_t>> in_batches(const std::vector<int64_t>& samples, size_t size) {
  std::vector<std::vector<int64_t>> batches;
  for (size_t i = 0; i < samples.size(); i += size)
    batches.emplace_back(samples.begin() + static_cast<std::ptrdiff_t>(i),
                         samples.begin() + static_cast<std::ptrdiff_t>(std::min(i + size, samples.size())));
  return batches;
}

TEST(Data, ARankWithAnotherBatchSizeIsAtFaultAndNotTheOthers) {
  spawn_ranks(3, [](int rank, int world_size) {
    const std::vector<int64_t> mine = range(rank, 192, world_size);
    const auto expect_uneven = [&](const DataReport& report) {
      const Finding found = only_fault(report);
      EXPECT_EQ(found.verdict, Verdict::uneven_data);
      EXPECT_EQ(found.kind, FindingKind::batch);
      EXPECT_EQ(found.ranks, RankSet{1});
      EXPECT_EQ(found.reference_ranks, (RankSet{0, 2}));
      EXPECT_THAT(found.message,
                  HasSubstr("batches: 16 on rank 1, 8 on ranks 0,2; samples in a batch: 8 on ranks 0,2, 4 "
                            "on rank 1; in batch 9"));
      EXPECT_THAT(found.message, HasSubstr("Use the same batch size on all ranks"));
      EXPECT_THAT(found.message, ::testing::Not(HasSubstr("join()")));
    };
    expect_uneven(data(in_batches(mine, rank == 1 ? 4 : 8), data_options()));
    expect_uneven(data(mine, data_options().batch_size(rank == 1 ? 4 : 8)));  // as the ranks say, whoever judges
    EXPECT_TRUE(data(mine, data_options().batch_size(rank == 1 ? 4 : 8).join(true)).ok());
  });
}

TEST(Data, MostRanksAreRightAboutTheNumberOfBatches) {
  spawn_ranks(3, [](int rank, int) {
    const Finding longer =
        only_fault(data(range(rank * 100, rank * 100 + (rank == 1 ? 96 : 80)), data_options().batch_size(8)));
    EXPECT_EQ(longer.ranks, RankSet{1});
    EXPECT_EQ(longer.reference_ranks, (RankSet{0, 2}));
    EXPECT_THAT(longer.message, HasSubstr("join()"));
    const Finding all_unlike =
        only_fault(data(range(rank * 100, rank * 100 + 80 + 8 * rank), data_options().batch_size(8)));
    EXPECT_EQ(all_unlike.ranks, (RankSet{0, 1}));  // those for which rank 2 waits
  });
}

TEST(Data, WhatFollowsFromAFaultIsSaidWithIt) {
  spawn_ranks(3, [](int rank, int world_size) {
    // The first share on every rank: the others are read by nobody.
    const Finding alike = only_fault(data(range(0, 300, world_size), data_options().size(300)));
    EXPECT_EQ(alike.kind, FindingKind::order);
    EXPECT_THAT(alike.message, HasSubstr("; because of that 200 of 300 samples are read by no rank: 1, 2, 4"));

    // Everything on one rank: it reads what the others read, and has more batches.
    const Finding undivided = only_fault(
        data(rank == 1 ? range(0, 300) : range(rank, 300, world_size), data_options().size(300).batch_size(10)));
    EXPECT_EQ(undivided.verdict, Verdict::duplicate_data);
    EXPECT_EQ(undivided.ranks, RankSet{1});
    EXPECT_EQ(undivided.reference_ranks, (RankSet{0, 2}));
    EXPECT_THAT(undivided.message, HasSubstr("rank 1 reads all 300 samples, also those of ranks 0,2"));
    EXPECT_THAT(undivided.message,
                HasSubstr("because of that numbers of batches differ: 30 on rank 1, 10 on ranks 0,2"));

    // A share that is cut off: fewer batches there.
    const Finding cut = only_fault(
        data(range(rank * 100, rank == 2 ? 260 : rank * 100 + 100), data_options().size(300).batch_size(10)));
    EXPECT_EQ(cut.verdict, Verdict::missing);
    EXPECT_EQ(cut.ranks, RankSet{2});
    EXPECT_THAT(cut.message, HasSubstr("40 of 300 samples are read by no rank: 260, 261"));
    EXPECT_THAT(cut.message, HasSubstr("because of that numbers of batches differ: 10 on ranks 0-1, 6 on rank 2"));

    // Indices that begin with 1.
    const Finding shifted = only_fault(data(range(rank * 100 + 1, rank * 100 + 101), data_options().size(300)));
    EXPECT_EQ(shifted.kind, FindingKind::index);
    EXPECT_EQ(shifted.ranks, RankSet{2});
    EXPECT_THAT(shifted.message, HasSubstr("1 of 300 samples is read by no rank: 0. Is every index 1 too high?"));
  });
}

TEST(Data, AnOmissionThatDoubleReadsDoNotExplainIsASecondFault) {
  spawn_ranks(2, [](int, int) {
    const DataReport report = data(range(0, 25), data_options().size(100));
    EXPECT_THAT(verdicts(report), ElementsAre("duplicate_data order", "missing sample")) << report;
  });
}

TEST(Data, ARankThatShufflesAsInAnotherEpochExplainsWhatIsReadTwice) {
  spawn_ranks(3, [](int rank, int world_size) {
    samplers::DistributedRandomSampler sampler(300, static_cast<size_t>(world_size), static_cast<size_t>(rank));
    if (rank != 1) sampler.set_epoch(2);
    for (const auto& options :
         {data_options().name("with").size(300).epoch(2), data_options().name("without").size(300)}) {
      const Finding found = only_fault(data(sampler, options));
      EXPECT_EQ(found.verdict, Verdict::duplicate_data);
      EXPECT_EQ(found.kind, FindingKind::epoch);
      EXPECT_EQ(found.ranks, RankSet{1});
      EXPECT_THAT(found.message, HasSubstr("samples in common"));
      EXPECT_THAT(found.message, HasSubstr("samples are read by no rank"));
    }
  });
}

TEST(Data, DatasetsOfUnequalSizesExplainWhatFollows) {
  spawn_ranks(3, [](int rank, int world_size) {
    const int64_t size = rank == 1 ? 240 : 300;
    const Finding found = only_fault(data(dealt(size, rank, world_size, 7), data_options().size(size).batch_size(10)));
    EXPECT_EQ(found.verdict, Verdict::mismatch);
    EXPECT_EQ(found.kind, FindingKind::size);
    EXPECT_EQ(found.ranks, RankSet{1});
    EXPECT_THAT(found.message, HasSubstr("size of the dataset: 300 on ranks 0,2, 240 on rank 1"));
    EXPECT_THAT(found.message, HasSubstr("because of that numbers of batches differ: 10 on ranks 0,2, 8 on rank 1"));
  });
}

TEST(Data, BatchesOfUnequalSizesAreANoteOnTheMeanOfMeans) {
  spawn_ranks(3, [](int rank, int) {
    const DataReport last = data(range(rank * 100, rank * 100 + (rank == 1 ? 58 : 60)), data_options().batch_size(8));
    EXPECT_TRUE(last.ok());
    EXPECT_THAT(last.findings[0].message,
                HasSubstr("of which the last is smaller on rank 1; if each rank's loss is a mean"));
    const DataReport all =
        data(in_batches(range(rank * 100, rank * 100 + (rank == 1 ? 32 : 64)), rank == 1 ? 4 : 8), data_options());
    EXPECT_TRUE(all.ok());
    EXPECT_EQ(all.findings[0].ranks, RankSet{1});
    EXPECT_THAT(all.findings[0].message,
                HasSubstr("samples in a batch: 8 on ranks 0,2, 4 on rank 1; every rank has 8 batches"));
    EXPECT_THAT(all.findings[0].message, ::testing::Not(HasSubstr("of which the last")));
    const DataReport equal = data(range(rank * 100, rank * 100 + 60), data_options().batch_size(8));
    EXPECT_EQ(equal.findings.size(), 1U) << equal;
  });
}

TEST(Data, BatchesOfAnObjectThatHasThemAreCounted) {
  spawn_ranks(2, [](int rank, int) {
    std::vector<std::vector<int64_t>> batches;
    for (int i = 0; i < (rank == 0 ? 4 : 3); ++i) batches.push_back(range(rank * 100 + i * 8, rank * 100 + i * 8 + 8));
    const Finding found = only_fault(data(batches, data_options()));
    EXPECT_EQ(found.verdict, Verdict::uneven_data);
    EXPECT_EQ(found.ranks, RankSet{1});
    const DataReport even = data(torch::arange(32).reshape({4, 8}) + 32 * rank, data_options());
    EXPECT_TRUE(even.ok());
    EXPECT_THAT(even.batches, ElementsAre(4, 4));
  });
}

TEST(Data, DroppedLastSamplesAreOkAndOthersAreNot) {
  spawn_ranks(2, [](int rank, int) {
    const DataReport dropped = data(range(rank * 50, rank * 50 + 50), data_options().size(101));
    EXPECT_TRUE(dropped.ok()) << dropped;
    EXPECT_EQ(dropped.omitted, 1);
    EXPECT_TRUE(data(range(rank * 48, rank * 48 + 48), data_options().size(101).batch_size(16)).ok());
    const Finding found = only_fault(data(range(rank * 48, rank * 48 + 48), data_options().size(101)));
    EXPECT_EQ(found.verdict, Verdict::missing);
    EXPECT_THAT(found.message, HasSubstr("5 of 101 samples are read by no rank: 96, 97, 98, 99, 100"));
  });
}

TEST(Data, IndicesBeyondTheDatasetAreNamed) {
  spawn_ranks(2, [](int rank, int) {
    const DataReport report = data(range(rank * 50, rank * 50 + 50), data_options().size(99));
    const Finding& found = only_fault(report);
    EXPECT_EQ(found.verdict, Verdict::mismatch);
    EXPECT_EQ(found.kind, FindingKind::index);
    EXPECT_EQ(found.ranks, RankSet{1});
    EXPECT_THAT(found.message, HasSubstr("beyond a dataset of 99: 99"));
  });
}

TEST(Data, DrawingWithReplacementIsNoFault) {
  spawn_ranks(2, [](int rank, int) {
    std::mt19937_64 random(static_cast<uint64_t>(rank));
    std::vector<int64_t> drawn;
    for (int i = 0; i < 500; ++i) drawn.push_back(static_cast<int64_t>(random() % 1000));
    const DataReport report = data(drawn, data_options().size(1000));
    EXPECT_TRUE(report.ok()) << report;
    EXPECT_GT(report.shared, 0);
  });
}

TEST(Data, AForgottenSetEpochIsFoundInTwoCallsThatNameTheirEpochs) {
  spawn_ranks(2, [](int rank, int world_size) {
    const auto order = dealt(100, rank, world_size, 1), other = dealt(100, rank, world_size, 2);
    const DataOptions options = data_options().name("forgotten");
    EXPECT_TRUE(data(order, DataOptions(options).epoch(0)).ok());
    EXPECT_TRUE(data(order, DataOptions(options).epoch(0)).ok());  // the same epoch, looked at again
    const Finding found = only_fault(data(order, DataOptions(options).epoch(1)));
    EXPECT_EQ(found.verdict, Verdict::duplicate_data);
    EXPECT_EQ(found.kind, FindingKind::epoch);
    EXPECT_THAT(found.message, HasSubstr("in epoch 1 ranks 0-1 read in the order of epoch 0: call set_epoch(1)"));
    EXPECT_TRUE(data(other, DataOptions(options).epoch(2)).ok());
  });
}

TEST(Data, WithoutEpochsTheSameOrderAgainIsANote) {
  spawn_ranks(2, [](int rank, int world_size) {
    const DataOptions options = data_options().name("again");
    EXPECT_EQ(data(dealt(100, rank, world_size, 1), options).findings.size(), 1U);
    const DataReport again = data(dealt(100, rank, world_size, 1), options);
    EXPECT_TRUE(again.ok());
    EXPECT_EQ(again.findings[0].kind, FindingKind::epoch);
    // Nobody shuffles here, so the order is the same in every epoch.
    const DataOptions sequence = data_options().name("sequence");
    for (int64_t epoch = 0; epoch < 2; ++epoch)
      EXPECT_EQ(data(range(rank, 100, world_size), DataOptions(sequence).epoch(epoch)).findings.size(), 1U);
  });
}

TEST(Data, ASamplerThatWasNotToldOfTheEpochIsFoundInOneCall) {
  spawn_ranks(2, [](int rank, int world_size) {
    samplers::DistributedRandomSampler sampler(100, static_cast<size_t>(world_size), static_cast<size_t>(rank));
    const DataOptions options = data_options().name("sampler").epoch(3);
    EXPECT_EQ(only_fault(data(sampler, options)).kind, FindingKind::epoch);
    sampler.set_epoch(3);
    EXPECT_TRUE(data(sampler, data_options().name("told").epoch(3)).ok());
    const samplers::DistributedSequentialSampler in_order(100, static_cast<size_t>(world_size),
                                                          static_cast<size_t>(rank));
    EXPECT_TRUE(data(in_order, data_options().name("in order").epoch(3)).ok());
  });
}

TEST(Data, ARankThatDoesNotCallEndsInAFinding) {
  spawn_ranks(3, [](int rank, int) {
    if (rank != 1) {
      const DataReport report = data(range(0, 10), data_options().deadline(std::chrono::seconds(2)));
      const Finding& found = only_fault(report);
      EXPECT_EQ(found.verdict, Verdict::missing);
      EXPECT_EQ(found.kind, FindingKind::call);
      EXPECT_EQ(found.ranks, RankSet{1});
    }
    dist::barrier();
    EXPECT_TRUE(data(range(rank * 10, rank * 10 + 10), data_options()).ok());
  });
}

TEST(Data, WhatIsNoIndexIsRefused) {
  EXPECT_THROW(samples_of(torch::rand({4})), dist::ArgumentError);
  EXPECT_THROW(samples_of(torch::Tensor()), dist::ArgumentError);
  EXPECT_THROW(samples_of(torch::tensor(3)), dist::ArgumentError);
  EXPECT_THROW(samples_of(torch::zeros({1, 1, 1}, torch::kLong)), dist::ArgumentError);
  // Their characters and bools would be taken for indices.
  static_assert(detail::TextOrMask<std::string> && detail::TextOrMask<char[6]> &&
                detail::TextOrMask<std::vector<bool>>);
  static_assert(detail::Integers<std::vector<int8_t>> && detail::Integers<std::vector<uint8_t>>);
  EXPECT_THROW(data(range(0, 10), DataOptions().batch_size(0)), dist::ArgumentError);
}

TEST(Data, LoadersWhoseWorkersBeginWithTheSameSeedAreANote) {
  spawn_ranks(3, [](int rank, int) {
    const Report report =
        data_of({.samples = range(rank, 9, 3), .worker_seed = rank == 2 ? 7 : 5}, data_options().size(9));
    EXPECT_THAT(verdicts(report), ElementsAre("ok -", "duplicate_data rng"));
    EXPECT_EQ(report.findings.back().ranks, (RankSet{0, 1}));
    EXPECT_THAT(report.findings.back().message, HasSubstr("the same seed on ranks 0-1"));
    EXPECT_THAT(verdicts(data_of({.samples = range(rank, 9, 3), .worker_seed = rank}, data_options().size(9))),
                ElementsAre("ok -"));
  });
}

}  // namespace
}  // namespace lockstep::inspect
