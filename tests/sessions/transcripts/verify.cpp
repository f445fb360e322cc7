// run: -n 3

// %% one element on one rank tags=["expects-finding=verify:mismatch"]
torch::nn::Linear net(16, 8);
{
  torch::NoGradGuard guard;
  net->weight.fill_(1);
  net->bias.fill_(0);
  if (rank == 1) net->weight[3][4] += 0.5;
}
%verify net

// %% by the lesson's ways, too tags=["expects-finding=verify:mismatch"]
%verify net --method broadcast
%verify net->weight --method all_gather --rtol 0.1

// %% plain values, without a majority tags=["expects-finding=verify:mismatch"]
%verify 10.0+rank --ranks 0,1

// %% generators tags=["expects-finding=verify:diverged_seed"]
set_seed(rank);
%verify rng

// %% what is equal
%quiet on
%verify net->bias
