// One rank evaluates after the epoch, and does not go back to training.
// symptom: one rank's loss is lower and smoother than the others', since dropout and batch norm are off there
// run: `%verify net`
// cause: `eval()` in `if (rank == 0)`, without `train()` after it
// fix: `net->train()` on every rank, at the beginning of each epoch
// ranks: 3
// expect: verify:mismatch kind=mode ranks=0 reference=1-2 object=net

// %% validate on rank 0
struct Net : torch::nn::Module {
  torch::nn::Linear fc1{register_module("fc1", torch::nn::Linear(4, 8))};
  torch::nn::Dropout dropout{register_module("dropout", torch::nn::Dropout(0.5))};
  torch::nn::Linear fc2{register_module("fc2", torch::nn::Linear(8, 2))};
  torch::Tensor forward(const torch::Tensor& x) { return fc2(dropout(torch::relu(fc1(x)))); }
};
set_seed(1);
auto net = ddp::DistributedDataParallel(std::make_shared<Net>());
if (rank == 0) {
  torch::NoGradGuard guard;
  net->eval();
  std::cout << "validation loss " << net->forward(torch::ones({2, 4})).square().mean().item<float>() << '\n';
}
%verify net
