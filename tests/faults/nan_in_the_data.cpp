// A NaN in one rank's data.
// symptom: NaN from the first layer on, on every rank after the reduction
// run: `%%nan` over the step
// cause: a sample with missing values
// fix: find and drop it on the rank in the message
// ranks: 2
// expect: nan:nan kind=forward ranks=1 reference=0

// %% data
struct Net : torch::nn::Module {
  torch::nn::Linear fc1{register_module("fc1", torch::nn::Linear(4, 8))};
  torch::nn::Linear fc2{register_module("fc2", torch::nn::Linear(8, 2))};
  torch::Tensor forward(const torch::Tensor& x) { return fc2(torch::relu(fc1(x))); }
};
set_seed(1);
auto net = ddp::DistributedDataParallel(std::make_shared<Net>());
auto x = torch::ones({4, 4});
if (rank == 1) x[3][0] = NAN;
// %% a step
%%nan
net(x).square().mean().backward();
