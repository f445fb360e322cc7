// Every label of one rank's batches is the one that the loss ignores.
// symptom: the mean gradient is half as large as it was
// run: `%grads net --local`
// cause: labels that are padding only, a mask that hides all
// fix: check that rank's share of the data
// ranks: 2
// severity: note
// exit: 0
// expect: grads:outlier kind=gradient ranks=1 reference=0 object=net

// %% nothing to learn from
struct Net : torch::nn::Module {
  torch::nn::Linear fc1{register_module("fc1", torch::nn::Linear(4, 8))};
  torch::nn::Linear fc2{register_module("fc2", torch::nn::Linear(8, 2))};
  torch::Tensor forward(const torch::Tensor& x) { return fc2(torch::relu(fc1(x))); }
};
set_seed(1);
auto net = std::make_shared<Net>();
set_seed(100 + rank);
auto mask = rank == 1 ? torch::zeros({4}) : torch::ones({4});
(net->forward(torch::randn({4, 4})).square().mean(1) * mask).sum().backward();
%grads net --local
