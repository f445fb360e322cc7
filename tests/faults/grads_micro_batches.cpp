// One rank accumulates over a micro-batch more than the others, within `no_sync()`.
// symptom: gradients of one rank have more weight than those of the others
// run: `%grads net --watch on`, and `%grads net`
// cause: the number of micro-batches depends on the rank (its memory, its share of the data)
// fix: the same number of micro-batches on all ranks, or losses divided by the samples of all ranks
// ranks: 3
// severity: note
// exit: 0
// expect: grads:uneven_data kind=micro_batch ranks=1 reference=0,2 object=net

// %% a step
struct Net : torch::nn::Module {
  torch::nn::Linear fc1{register_module("fc1", torch::nn::Linear(4, 8))};
  torch::nn::Linear fc2{register_module("fc2", torch::nn::Linear(8, 2))};
  torch::Tensor forward(const torch::Tensor& x) { return fc2(torch::relu(fc1(x))); }
};
set_seed(1);
auto net = ddp::DistributedDataParallel(std::make_shared<Net>());
%grads net --watch on
set_seed(100 + rank);
{
  const auto scope = net.no_sync();
  for (int i = 0; i < (rank == 1 ? 3 : 2); ++i) net(torch::randn({4, 4})).square().mean().backward();
}
net(torch::randn({4, 4})).square().mean().backward();
%grads net
