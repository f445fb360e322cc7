// The last batch of one rank is smaller; there are as many batches.
// ranks: 2
// ok: data

// %% indices
auto indices = torch::arange(rank == 0 ? 0 : 30, rank == 0 ? 30 : 59);
%data indices --batch-size 8 --size 59
