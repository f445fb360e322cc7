// Each rank shuffles with its own seed, and takes every second sample of that.
// symptom: an epoch leaves samples out and reads others twice
// run: `%data indices --size N`
// cause: shares of different permutations
// fix: one seed for the shuffle on all ranks
// thread: pytorch/pytorch#11324
// ranks: 2
// expect: data:duplicate_data kind=sample ranks=0-1 object=indices

// %% indices
set_seed(42 + rank);
auto indices = torch::randperm(100).slice(0, rank, 100, world_size);
%data indices --size 100
