// run: -n 2
// exit: 2
// %% a lesson sets a check
%%check total
TORCH_CHECK(total == 1, "total is ", total, ": sum the ranks with dist::all_reduce");
// %% the answer is wrong tags=["raises-exception"]
int total = rank;
%check total
// %% the answer is right
auto sum = torch::tensor({rank});
dist::all_reduce(sum);
int total = sum.item<int>();
%check total
// %% names of a check are its own
%%check own
int own = total;
TORCH_CHECK(own == 1);
// %%
double own = 0.5;
%check own total
own
// %%
%check
// %% no such check
%check totl
