// Accumulation whose forward stands outside of `no_sync()`: every micro-step is reduced all the same.
// symptom: accumulating is no faster than not accumulating
// run: `%grads net --watch on`, and `%grads net`
// cause: forward decides, and only backward is within the scope
// fix: run forward within the scope, too
// thread: speechbrain/speechbrain#1802
// ranks: 2
// expect: grads:mismatch kind=reduction ranks=0-1 object=net step=1

// %% accumulate
struct Net : torch::nn::Module {
  torch::nn::Linear fc1{register_module("fc1", torch::nn::Linear(4, 8))};
  torch::nn::Linear fc2{register_module("fc2", torch::nn::Linear(8, 2))};
  torch::Tensor forward(const torch::Tensor& x) { return fc2(torch::relu(fc1(x))); }
};
set_seed(1);
auto net = ddp::DistributedDataParallel(std::make_shared<Net>());
%grads net --watch on
set_seed(100 + rank);
auto loss = net(torch::randn({4, 4})).square().mean();
{
  const auto scope = net.no_sync();
  loss.backward();
}
%grads net
