// run: -n 2
// exit: 1

// %% magics in between do not move lines
int a = 1;
%sync
// a comment

throw std::runtime_error("line 5 of the cell");
