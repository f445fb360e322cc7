// ddp::DistributedSampler against what torch.utils.data.DistributedSampler of torch 2.11 in Python gives.
#include "ddp/distributed_sampler.h"

#include <gmock/gmock.h>

#include <numeric>
#include <sstream>

#include "ddp/distributed_data_parallel.h"
#include "inspectors/data/data.h"
#include "tests/support/spawn_ranks.h"

namespace lockstep::test {
namespace {

using ddp::DistributedSampler;
using ddp::DistributedSamplerOptions;
using ::testing::ElementsAre;

using Indices = std::vector<size_t>;

Indices rest_of(DistributedSampler& sampler, size_t batch = 3) {
  Indices all;
  while (const auto indices = sampler.next(batch)) all.insert(all.end(), indices->begin(), indices->end());
  return all;
}

TEST(DistributedSampler, GivesWhatPythonsGives) {
  struct Reference {
    size_t size, ranks;
    bool shuffle;
    uint64_t seed;
    size_t epoch;
    bool drop_last;
    std::vector<Indices> indices;
  };
  // list(DistributedSampler(dataset, ranks, rank, shuffle, seed, drop_last)) after set_epoch(epoch), for every rank.
  const std::vector<Reference> references = {
      {10, 3, true, 0, 0, false, {{4, 5, 0, 2}, {1, 3, 8, 4}, {7, 9, 6, 1}}},
      {10, 3, true, 0, 1, false, {{5, 2, 9, 4}, {6, 0, 3, 5}, {1, 8, 7, 6}}},
      {10, 3, true, 5, 2, true, {{5, 4, 9}, {0, 1, 6}, {3, 7, 8}}},
      {10, 3, false, 0, 0, false, {{0, 3, 6, 9}, {1, 4, 7, 0}, {2, 5, 8, 1}}},
      {10, 3, false, 0, 0, true, {{0, 3, 6}, {1, 4, 7}, {2, 5, 8}}},
      {3, 8, true, 1, 4, false, {{2}, {1}, {0}, {2}, {1}, {0}, {2}, {1}}},
      {5, 8, true, 0, 0, true, {{}, {}, {}, {}, {}, {}, {}, {}}},
      {12, 4, true, 123, 7, false, {{5, 6, 9}, {4, 2, 10}, {3, 7, 0}, {1, 8, 11}}},
      {1, 4, true, 0, 0, false, {{0}, {0}, {0}, {0}}},
  };
  for (const auto& reference : references) {
    for (size_t rank = 0; rank < reference.ranks; ++rank) {
      DistributedSampler sampler(reference.size, DistributedSamplerOptions()
                                                     .num_replicas(reference.ranks)
                                                     .rank(rank)
                                                     .shuffle(reference.shuffle)
                                                     .seed(reference.seed)
                                                     .drop_last(reference.drop_last));
      sampler.set_epoch(reference.epoch);
      sampler.reset();
      EXPECT_EQ(sampler.size(), reference.indices[rank].size());
      EXPECT_EQ(rest_of(sampler), reference.indices[rank]) << "of " << reference.size << ", rank " << rank;
    }
  }
  // Large ones by their sum: hash = hash * 31 + index, modulo 2^64.
  const auto hash_of = [](size_t size, size_t ranks, size_t rank) {
    DistributedSampler sampler(size, DistributedSamplerOptions().num_replicas(ranks).rank(rank).seed(42));
    sampler.set_epoch(3);
    sampler.reset();
    uint64_t hash = 0;
    for (const size_t index : rest_of(sampler, 100)) hash = hash * 31 + index;
    return hash;
  };
  EXPECT_EQ(hash_of(60000, 8, 3), 9668733026711267055u);
  EXPECT_EQ(hash_of(1000003, 7, 6), 11907785167352442084u);
}

struct Numbers : torch::data::datasets::Dataset<Numbers> {
  torch::data::Example<> get(size_t index) override {
    return {torch::tensor(static_cast<int64_t>(index)), torch::zeros({1})};
  }
  std::optional<size_t> size() const override { return 10; }
};

TEST(DistributedSampler, ReachesTheLoaderThatHasACopy) {
  DistributedSampler sampler(10, DistributedSamplerOptions().num_replicas(3).rank(1));
  const auto loader = torch::data::make_data_loader(Numbers(), sampler, /*batch_size=*/3);
  for (const auto& expected : {Indices{1, 3, 8, 4}, Indices{6, 0, 3, 5}}) {
    sampler.set_epoch(expected[0] == 1 ? 0 : 1);
    Indices read;
    for (const auto& batch : *loader)
      for (const auto& example : batch) read.push_back(static_cast<size_t>(example.data.item<int64_t>()));
    EXPECT_EQ(read, expected);
  }
}

TEST(DistributedSampler, IsSavedWithItsPlace) {
  const auto options = DistributedSamplerOptions().num_replicas(3).rank(2);
  DistributedSampler sampler(10, options), other(10, options);
  sampler.set_epoch(1);
  sampler.reset();
  EXPECT_THAT(*sampler.next(2), ElementsAre(1, 8));
  torch::serialize::OutputArchive saved;
  sampler.save(saved);
  std::stringstream stream;
  saved.save_to(stream);
  torch::serialize::InputArchive loaded;
  loaded.load_from(stream);
  other.load(loaded);
  EXPECT_EQ(other.epoch(), 1u);
  EXPECT_THAT(rest_of(other), ElementsAre(7, 6));
  EXPECT_EQ(rest_of(sampler), (Indices{7, 6}));
  other.reset(6);
  EXPECT_EQ(other.size(), 2u);
}

TEST(DistributedSampler, TakesItsRankFromTheGroupAndRefusesOneThatIsNone) {
  testing::spawn_ranks(2, [](int rank, int) {
    DistributedSampler sampler(5, DistributedSamplerOptions().shuffle(false));
    EXPECT_EQ(rest_of(sampler), rank == 0 ? (Indices{0, 2, 4}) : (Indices{1, 3, 0}));
    EXPECT_THROW(DistributedSampler(5, DistributedSamplerOptions().rank(2)), ddp::ArgumentError);
    EXPECT_THROW(DistributedSampler(5, DistributedSamplerOptions().num_replicas(0)), ddp::ArgumentError);
  });
  DistributedSampler alone(4, DistributedSamplerOptions().shuffle(false));
  EXPECT_EQ(rest_of(alone), (Indices{0, 1, 2, 3}));
  EXPECT_EQ(alone.next(1), std::nullopt);
}

TEST(DistributedSampler, IsLeftInItsEpochByWhoeverLooks) {
  DistributedSampler sampler(10, DistributedSamplerOptions().num_replicas(2).rank(0));
  sampler.set_epoch(4);
  sampler.next(2);
  const auto order = inspect::samples_of(sampler);
  EXPECT_EQ(order.reported_epoch, 4);
  EXPECT_EQ(order.samples.size(), 5u);
  EXPECT_NE(order.of_epoch(0), order.samples);
  EXPECT_EQ(sampler.epoch(), 4u);
  EXPECT_EQ(rest_of(sampler).size(), 3u);
}

}  // namespace
}  // namespace lockstep::test
