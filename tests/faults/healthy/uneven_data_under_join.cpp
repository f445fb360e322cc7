// Shares of unequal length for a loop that runs under `join`.
// ranks: 2
// ok: data

// %% indices
auto indices = torch::arange(rank == 0 ? 0 : 30, rank == 0 ? 30 : 50);
%data indices --batch-size 4 --size 50 --join
