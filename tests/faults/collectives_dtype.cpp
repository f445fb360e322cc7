// A counter that is float on one rank and int64 on the others.
// symptom: nonsense in a metric
// ask: nothing: it is told before data moves
// cause: the dtype follows from the data that a rank has seen
// mend: give the dtype
// ranks: 3
// expect: collectives:dtype_mismatch ranks=1 reference=0,2 op=all_reduce

// %% count
std::vector<torch::Tensor> seen;
if (rank == 1) seen.push_back(torch::ones({1}));
auto count = seen.empty() ? torch::zeros({1}, torch::kLong) : torch::stack(seen).sum(0);
dist::all_reduce(count);
