// run: -n 3

// %% rank 1 alone tags=["raises-exception"]
std::cout << "before\n";
if (rank == 1) throw std::runtime_error("only here");
int after = 5;

// %% the others have it
%%rank [0,2]
after

// %% and all go on
std::cout << "all of us\n";
