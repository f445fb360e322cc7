// exit: 2
// run: -n 3

// %% on rank 0 and 2
%%rank [0,2]
std::cout << "here\n";
int only_there = rank;

// %% one line on one rank
%rank 1 std::cout << "just me\n";

// %% values by their number
show(rank); show(rank + 10, "later"); show(7); show(torch::ones({2, 2}), "ones");

// %% the ranks of cells from now on
%rank 0,2
rank

// %% and on all again
%rank all

// %% a rank that does not exist
// The session goes on after it.
%%rank 7
std::cout << "never\n";
