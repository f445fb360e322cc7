// The same collective from other lines of code: the root sends what it has, the others receive.
// ranks: 3

// %% broadcast
auto mine = torch::arange(4.0);
auto theirs = torch::zeros({4});
if (rank == 0)
  dist::broadcast(mine, 0);
else
  dist::broadcast(theirs, 0);
