// A rank that reads the share of another, since its number was written into a configuration file.
// symptom: part of the data is never read, part of it twice
// run: `%data indices --size N`
// cause: the sampler has another rank's number
// fix: `dist::get_rank()`
// ranks: 3
// expect: data:duplicate_data kind=order ranks=1-2 object=indices

// %% shares
const int configured_rank = rank == 2 ? 1 : rank;
auto indices = torch::arange(configured_rank, 90, world_size);
%data indices --size 90
