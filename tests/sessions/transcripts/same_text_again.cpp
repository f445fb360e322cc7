// run: -n 2

// %%
int k = 1; std::vector<void*> code;

// %% The object of the first is what the second runs: the same address.
code.push_back((void*)+[] {}); k += 1; k

// %%
code.push_back((void*)+[] {}); k += 1; k

// %%
code[0] == code[1]

// %% After a definition it means something else.
double k = 0.5;

// %%
code.push_back((void*)+[] {}); k += 1; k

// %%
code[1] == code[2]

// %% tags=["raises-exception"]
if (k > 1) throw std::runtime_error("too large");

// %% An error names the cell that runs, not the one that was compiled. tags=["raises-exception"]
if (k > 1) throw std::runtime_error("too large");

// %% What is static belongs to a cell.
{ static int runs = 0; printf("run %d\n", ++runs); }

// %%
{ static int runs = 0; printf("run %d\n", ++runs); }

// %%
%%rank [0]
k += 1; k

// %%
%%rank [1]
k += 1; k

// %%
k += 1; k

// %%
%%rank [0]
k += 1; k

// %%
k

// %%
%reset code

// %% tags=["raises-exception"]
code[1] == code[2]
