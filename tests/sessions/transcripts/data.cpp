// run: -n 3

// %% shares that cover the dataset
#include <numeric>
std::vector<int64_t> share(int64_t size, int part) {
  std::vector<int64_t> indices;
  for (int64_t i = part; i < size; i += world_size) indices.push_back(i);
  return indices;
}
auto indices = share(300, rank);
%data indices --size 300 --batch-size 32

// %% a sampler of LibTorch's, which pads
torch::data::samplers::DistributedRandomSampler sampler(100, world_size, rank);
%data sampler --size 100 --epoch 0

// %% two ranks with one share tags=["expects-finding=data:duplicate_data"]
%data share(300,rank==2?1:rank)

// %% a batch more on one rank tags=["expects-finding=data:uneven_data"]
auto uneven = share(300, rank);
if (rank == 1) uneven.resize(90);
%data uneven --batch-size 10

// %% the same under join
%data uneven --batch-size 10 --join

// %% a sampler that was not told of the epoch tags=["expects-finding=data:duplicate_data"]
%data sampler --epoch 1
