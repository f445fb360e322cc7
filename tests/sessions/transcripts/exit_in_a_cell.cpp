// run: -n 2
// exit: 5

// %% one rank ends itself
if (rank == 0) std::exit(3);
