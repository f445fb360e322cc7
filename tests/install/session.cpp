// %% from an installed tree
auto ranks = torch::tensor({rank});
dist::all_reduce(ranks);
std::cout << "sum of ranks is " << ranks.item<int>() << ", interposer: " << dist::is_interposer_active() << '\n';
