// A sampler whose set_epoch is called in each epoch.
// ranks: 2
// ok: data

// %% two epochs
torch::data::samplers::DistributedRandomSampler sampler(100, world_size, rank);
%data sampler --epoch 0
sampler.set_epoch(1);
%data sampler --epoch 1
