// Collectives that are begun in one order, and waited for in another.
// ranks: 2

// %% asynchronous
auto a = torch::ones({4}), b = torch::ones({8});
auto first = dist::all_reduce(a, dist::ReduceOp::SUM, {}, true);
auto second = dist::all_reduce(b, dist::ReduceOp::SUM, {}, true);
if (rank == 0) {
  second.wait();
  first.wait();
} else {
  first.wait();
  second.wait();
}
