// set_epoch is called on some ranks only.
// symptom: from the second epoch on some samples are read twice, and others by no rank
// run: `%data sampler --epoch 1` in the second epoch
// cause: `set_epoch` is in a branch that one rank does not take
// fix: call it on every rank
// ranks: 3
// expect: data:duplicate_data kind=epoch ranks=1 object=sampler

// %% the second epoch
torch::data::samplers::DistributedRandomSampler sampler(300, world_size, rank);
if (rank != 1) sampler.set_epoch(1);
%data sampler --epoch 1 --size 300
