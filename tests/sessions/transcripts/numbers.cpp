// run: -n 2
// exit: 1

// %%
int k = rank;

// %% Not a cell of people's, though the ranks run it.
%sync

// %% expects-finding says the number that people see. tags=["expects-finding=verify:mismatch"]
%verify k

// %%
k += 1;
%verify k
int j = 0;
