// A batch whose targets are all padding: the mean over none of them is 0 / 0.
// symptom: NaN for some batches with finite inputs and logits
// run: `%%nan` over the step
// cause: `cross_entropy` leaves targets at `ignore_index` out of its mean, and no others remain
// fix: leave such batches out on all ranks, or sum the losses and divide by at least one
// thread: pytorch/pytorch#75181
// ranks: 2
// expect: nan:nan ranks=1 op=nll_loss_forward

// %% model
struct Net : torch::nn::Module {
  torch::nn::Linear fc1{register_module("fc1", torch::nn::Linear(4, 8))};
  torch::nn::Linear fc2{register_module("fc2", torch::nn::Linear(8, 2))};
  torch::Tensor forward(const torch::Tensor& x) { return fc2(torch::relu(fc1(x))); }
};
set_seed(1);
auto net = ddp::DistributedDataParallel(std::make_shared<Net>());
auto target = torch::arange(4) % 2;
if (rank == 1) target.fill_(-100);
// %% a step
%%nan
torch::nn::functional::cross_entropy(net(torch::ones({4, 4})), target).backward();
