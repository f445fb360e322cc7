// 100 samples for three ranks without repeating any: one is left out.
// ranks: 3
// ok: data

// %% indices
torch::data::samplers::DistributedRandomSampler sampler(100, world_size, rank, false);
%data sampler --size 100 --epoch 0
