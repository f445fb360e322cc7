// Running statistics of BatchNorm in a loop by hand: each rank has those of its own batches.
// symptom: validation differs between ranks, and the model of rank 0 is saved
// run: `%verify net`
// cause: no wrapper broadcasts buffers, and nothing averages them
// fix: a wrapper with `broadcast_buffers`, `ddp::SyncBatchNorm`, or all-reduce them before validation
// thread: facebookresearch/detectron2#5398
// ranks: 2
// expect: verify:mismatch kind=buffer ranks=0-1 object=net tensor=bn.running_mean

// %% train by hand
struct Net : torch::nn::Module {
  torch::nn::Linear fc{register_module("fc", torch::nn::Linear(4, 8))};
  torch::nn::BatchNorm1d bn{register_module("bn", torch::nn::BatchNorm1d(8))};
  torch::Tensor forward(const torch::Tensor& x) { return bn(fc(x)); }
};
set_seed(1);
auto net = std::make_shared<Net>();
torch::optim::SGD optimizer(net->parameters(), 0.1);
set_seed(100 + rank);
for (int step = 0; step < 2; ++step) {
  optimizer.zero_grad();
  net->forward(torch::randn({8, 4})).square().sum().backward();
  for (auto& parameter : net->parameters()) dist::all_reduce(parameter.grad(), dist::ReduceOp::AVG);
  optimizer.step();
}
%verify net
