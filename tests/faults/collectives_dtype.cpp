// A counter that is float on one rank and int64 on the others.
// symptom: a meaningless metric
// run: nothing: reported before data moves
// cause: the dtype depends on the rank's data
// fix: pass the dtype explicitly
// ranks: 3
// expect: collectives:dtype_mismatch ranks=1 reference=0,2 op=all_reduce

// %% count
std::vector<torch::Tensor> seen;
if (rank == 1) seen.push_back(torch::ones({1}));
auto count = seen.empty() ? torch::zeros({1}, torch::kLong) : torch::stack(seen).sum(0);
dist::all_reduce(count);
