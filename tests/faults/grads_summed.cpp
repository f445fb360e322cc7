// A communication hook that sums and does not divide.
// symptom: diverges at a learning rate that works with one process
// run: `%grads net --watch on`, and `%grads net` after backward
// cause: hooks also replace the division by the number of ranks
// fix: divide in the hook
// thread: neuralmagic/sparseml#135
// ranks: 2
// expect: grads:mismatch kind=reduction ranks=0-1 object=net tensor=fc1.weight step=1

// %% a hook
struct Net : torch::nn::Module {
  torch::nn::Linear fc1{register_module("fc1", torch::nn::Linear(4, 8))};
  torch::nn::Linear fc2{register_module("fc2", torch::nn::Linear(8, 2))};
  torch::Tensor forward(const torch::Tensor& x) { return fc2(torch::relu(fc1(x))); }
};
set_seed(1);
auto net = ddp::DistributedDataParallel(std::make_shared<Net>());
net.register_comm_hook([](ddp::GradBucket& bucket) {
  dist::all_reduce(bucket.getBufferRef());
  return ddp::noop_hook().run(bucket);
});
%grads net --watch on
set_seed(100 + rank);
net(torch::randn({4, 4})).square().mean().backward();
%grads net
