// One rank's loss is NaN; after the reduction every rank's gradient is.
// symptom: all ranks have NaN at once, although rank 0's loss was finite
// run: `%grads net --watch on`, and `%grads net`
// cause: a bad sample on one rank; averaging spreads it
// fix: find the sample on the rank in the message; check losses on all ranks, not only on rank 0
// thread: ecmwf/WeatherGenerator#2718
// ranks: 2
// expect: grads:nan kind=gradient ranks=1 reference=0 object=net tensor=fc1.weight step=1

// %% a bad sample
struct Net : torch::nn::Module {
  torch::nn::Linear fc1{register_module("fc1", torch::nn::Linear(4, 8))};
  torch::nn::Linear fc2{register_module("fc2", torch::nn::Linear(8, 2))};
  torch::Tensor forward(const torch::Tensor& x) { return fc2(torch::relu(fc1(x))); }
};
set_seed(1);
auto net = ddp::DistributedDataParallel(std::make_shared<Net>());
%grads net --watch on
set_seed(100 + rank);
auto x = torch::randn({4, 4});
if (rank == 1) x[2][1] = NAN;
net(x).square().mean().backward();
%grads net
