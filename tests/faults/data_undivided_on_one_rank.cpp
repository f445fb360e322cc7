// One rank reads all of the data.
// symptom: a hang after the shares of the others
// ask: `%data indices --size N`
// cause: a sampler of its own on one rank, without a share
// mend: the same distributed sampler on all ranks
// ranks: 3
// expect: data:duplicate_data kind=sample ranks=1 reference=0,2 object=indices

// %% shares
auto indices = rank == 1 ? torch::arange(300) : torch::arange(rank, 300, world_size);
%data indices --size 300 --batch-size 10
