// %% a wrapper, watched
%quiet on
torch::manual_seed(1);
auto net = ddp::DistributedDataParallel(torch::nn::Linear(4, 2));
torch::optim::SGD optimizer(net.parameters(), 0.1);
auto train = [&](double scale) {
  auto x = torch::arange(12.0).reshape({3, 4}).mul(0.1 * (rank + 1)).sin();
  net.zero_grad();
  (net(x).pow(2).mean() * scale).backward();
};
%grads net --watch on

// %% as it should be
train(1);
%grads net
%grads net --local --threshold 20

// %% one rank's loss is not a number tags=["expects-finding=grads:nan"]
train(rank == 2 ? std::nan("") : 1.0);
%grads net

// %% a loop by hand that reduces nothing tags=["expects-finding=grads:mismatch"]
torch::nn::Linear bare(4, 2);
{
  torch::NoGradGuard guard;
  for (auto& parameter : bare->parameters()) parameter.fill_(0.5);
}
%grads bare --watch on
bare(torch::full({1, 4}, rank + 1.0)).pow(2).sum().backward();
%grads bare

// %% another loss scale on rank 1
%quiet off
bare->zero_grad();
(bare(torch::full({1, 4}, 1.0 + 0.1 * rank)).pow(2).sum() * (rank == 1 ? 1000 : 1)).backward();
%grads bare --local

// %% verify while it trains tags=["expects-finding=verify:mismatch"]
%quiet on
%verify net --every 2
for (int step = 0; step < 6; ++step) {
  train(1);
  optimizer.step();
  if (step == 3 && rank == 1) {
    torch::NoGradGuard guard;
    net->bias[1] += 0.25;
  }
}
%verify --every off
