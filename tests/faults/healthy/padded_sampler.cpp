// 100 samples for three ranks: the sampler repeats two, so that all have as many.
// ranks: 3
// ok: data

// %% indices
torch::data::samplers::DistributedRandomSampler sampler(100, world_size, rank);
%data sampler --size 100 --epoch 0
