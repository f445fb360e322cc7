// %% [markdown]
// # What a program for ddp:: names besides the wrapper is complete in a cell
// c10d's own hooks and its Reducer, Python's sampler in a DataLoader, and an optimizer that clears bucket views between forward and backward.

// %% a hook of c10d's
torch::nn::Linear linear(4, 2);
auto net = ddp::DistributedDataParallel(linear, ddp::Options().gradient_as_bucket_view(true));
net.register_builtin_comm_hook(c10d::BuiltinCommHookType::ALLREDUCE);
torch::optim::SGD optimizer(net.parameters(), 0.1);

// %% a step, cleared after forward
for (int step = 0; step < 3; ++step) {
  auto loss = net(torch::full({2, 4}, rank + step + 1.0)).square().mean();
  optimizer.zero_grad();
  loss.backward();
  optimizer.step();
}
for (const auto& parameter : net.parameters())
  for (const auto& other : dist::all_gather(parameter.detach()))
    if (!torch::equal(other, parameter)) throw std::runtime_error("replicas differ");

// %% the Reducer and its record
if (net.reducer()->get_backward_stats().size() != 2) throw std::runtime_error("the Reducer has other parameters");
if (net.logging_data().strs_map.at("comm_hook") != "ALLREDUCE") throw std::runtime_error("another hook");

// %% Python's sampler, with a loader that keeps a copy of it
struct Numbers : torch::data::datasets::Dataset<Numbers> {
  torch::data::Example<> get(size_t index) override { return {torch::tensor(int64_t(index)), torch::zeros({1})}; }
  std::optional<size_t> size() const override { return 10; }
};
ddp::DistributedSampler sampler(10);
auto loader = torch::data::make_data_loader(Numbers(), sampler, 4);
std::vector<int64_t> order;
for (int epoch = 0; epoch < 2; ++epoch) {
  sampler.set_epoch(epoch);
  for (auto& batch : *loader)
    for (auto& example : batch) order.push_back(example.data.item<int64_t>());
}
const std::vector<std::vector<int64_t>> python = {{4, 5, 0, 2, 5, 2, 9, 4}, {1, 3, 8, 4, 6, 0, 3, 5}, {7, 9, 6, 1, 1, 8, 7, 6}};
if (order != python.at(rank)) throw std::runtime_error("not what Python's DistributedSampler reads");

// %% an inspector leaves it in its epoch
%data sampler --size 10 --epoch 1

// %%
if (sampler.epoch() != 1) throw std::runtime_error("the epoch was changed");
