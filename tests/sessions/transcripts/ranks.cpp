// exit: 2
// run: -n 3

// %% on rank 0 and 2
%%rank [0,2]
std::cout << "here\n";
int only_there = rank;

// %% one line on one rank
%rank 1 std::cout << "just me\n";

// %% a rank that does not exist
// The session goes on after it.
%%rank 7
std::cout << "never\n";
