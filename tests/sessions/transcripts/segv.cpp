// run: -n 3
// exit: 5

// %% one rank crashes
int* nowhere = nullptr;
std::cout << "before" << std::endl;
if (rank == 1) *nowhere = 1;
