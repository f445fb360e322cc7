// Both ranks train on the same batch.
// symptom: no faster convergence with more ranks
// run: `%grads net --watch on`, and `%grads net --local`
// cause: the same seed for the shuffle, and no share per rank
// fix: a distributed sampler (`ddp::random_sampler(size)`)
// thread: openspeech-team/openspeech#149
// ranks: 2
// severity: note
// exit: 0
// expect: grads:duplicate_data kind=gradient ranks=0-1 object=net

// %% the same batch
struct Net : torch::nn::Module {
  torch::nn::Linear fc1{register_module("fc1", torch::nn::Linear(4, 8))};
  torch::nn::Linear fc2{register_module("fc2", torch::nn::Linear(8, 2))};
  torch::Tensor forward(const torch::Tensor& x) { return fc2(torch::relu(fc1(x))); }
};
set_seed(1);
auto net = ddp::DistributedDataParallel(std::make_shared<Net>());
%grads net --watch on
set_seed(42);
net(torch::randn({4, 4})).square().mean().backward();
%grads net --local
