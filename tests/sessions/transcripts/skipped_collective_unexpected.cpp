// run: -n 2
// exit: 4

// %% rank 1 does not come
auto t = torch::ones({2});
if (rank == 0) dist::all_reduce(t);

// %% not reached
std::cout << "never\n";
