// Gradients are reduced in another order in the second step already: one step has shown the right one.
// symptom: wrong gradients, or a hang where shapes differ
// run: nothing: reported before data moves
// cause: iteration over an unordered container
// fix: reduce in the order of `named_parameters()`
// ranks: 2
// expect: collectives:order_mismatch ranks=0-1

// %% reduce
auto weight = torch::ones({2, 3});
auto bias = torch::ones({3});
for (int step = 0; step < 2; ++step) {
  if (step == 0 || rank == 0) dist::all_reduce(weight);
  dist::all_reduce(bias);
  if (step == 1 && rank == 1) dist::all_reduce(weight);
}
