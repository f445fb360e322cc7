// A distributed sampler that nobody tells of the new epoch.
// symptom: the same order in every epoch
// run: `%data sampler --epoch 1` in the second epoch
// cause: `set_epoch` is not called
// fix: `sampler.set_epoch(epoch)` before the loader begins an epoch
// thread: pytorch/pytorch#31771
// ranks: 2
// expect: data:duplicate_data kind=epoch ranks=0-1 object=sampler

// %% the second epoch
torch::data::samplers::DistributedRandomSampler sampler(100, world_size, rank);
%data sampler --epoch 1
