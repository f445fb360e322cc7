// A loss that becomes NaN in the third step, on one rank, while the watch is on.
// symptom: somewhere in a long run losses become NaN
// run: `%nan on` before training
// cause: a bad batch
// fix: check the batch of that step on that rank
// thread: ecmwf/WeatherGenerator#2718
// ranks: 2
// expect: nan:nan kind=forward ranks=1 step=3 where=here

// %% model
struct Net : torch::nn::Module {
  torch::nn::Linear fc1{register_module("fc1", torch::nn::Linear(4, 8))};
  torch::nn::Linear fc2{register_module("fc2", torch::nn::Linear(8, 2))};
  torch::Tensor forward(const torch::Tensor& x) { return fc2(torch::relu(fc1(x))); }
};
set_seed(1);
auto net = ddp::DistributedDataParallel(std::make_shared<Net>());
torch::optim::SGD optimizer(net.parameters(), 0.1);
%nan on
// %% train
for (int step = 1; step <= 3; ++step) {
  net.zero_grad();
  auto target = torch::ones({4, 2}) * (rank == 1 && step == 3 ? NAN : 1.0);
  auto loss = torch::mse_loss(net(torch::randn({4, 4})), target);
  loss.backward();  // <- here
  optimizer.step();
}
