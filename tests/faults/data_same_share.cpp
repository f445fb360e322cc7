// Every rank reads the first share: the others are read by nobody.
// symptom: an epoch has the right length, but the model sees only part of the data
// run: `%data sampler --size N`
// cause: the sampler was made before the ranks knew their numbers
// fix: make it after `init_process_group`, with `dist::get_rank()`
// ranks: 3
// expect: data:duplicate_data kind=order ranks=0-2 object=sampler

// %% a sampler
torch::data::samplers::DistributedRandomSampler sampler(300, world_size, /*rank=*/0);
%data sampler --size 300
