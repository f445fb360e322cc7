// One rank reads all of the data.
// symptom: a hang when the other ranks have finished their shares
// run: `%data indices --size N`
// cause: one rank uses another sampler, without shares
// fix: the same distributed sampler on all ranks
// ranks: 3
// expect: data:duplicate_data kind=sample ranks=1 reference=0,2 object=indices

// %% shares
auto indices = rank == 1 ? torch::arange(300) : torch::arange(rank, 300, world_size);
%data indices --size 300 --batch-size 10
