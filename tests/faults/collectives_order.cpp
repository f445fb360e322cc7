// Gradients are reduced in the order of a hash map, which has been filled anew on one rank.
// symptom: wrong gradients, or a hang where shapes differ
// run: nothing: reported before data moves
// cause: iteration over an unordered container
// fix: reduce in the order of `named_parameters()`
// ranks: 2
// expect: collectives:order_mismatch ranks=0-1

// %% reduce
auto weight = torch::ones({2, 3});
auto bias = torch::ones({3});
for (int step = 0; step < 4; ++step) {
  if (step < 3 || rank == 0) dist::all_reduce(weight);
  dist::all_reduce(bias);
  if (step == 3 && rank == 1) dist::all_reduce(weight);
}
