// %% [markdown]
// # A wrapped module goes on after a cell that failed
// A rank throws in forward, in backward, or leaves a loop early. The ranks are connected anew before the next cell, and the wrapper of an earlier
// cell trains on, replicas bit-equal.

// %% a model, and what it must do after each failure
struct Net : torch::nn::Module {
  torch::nn::Linear in{register_module("in", torch::nn::Linear(8, 16))};
  torch::nn::BatchNorm1d norm{register_module("norm", torch::nn::BatchNorm1d(16))};
  torch::nn::Linear out{register_module("out", torch::nn::Linear(16, 4))};
  std::function<void()> in_forward = [] {}, in_backward = [] {};
  torch::Tensor forward(const torch::Tensor& x) {
    auto y = torch::relu(norm(in(x)));
    in_forward();
    if (y.requires_grad()) y.register_hook([this](torch::Tensor) { in_backward(); });
    return out(y);
  }
};

set_seed(7);
auto net = ddp::DistributedDataParallel(std::make_shared<Net>(), ddp::Options().bucket_cap_mb(0.0005));
auto views = ddp::DistributedDataParallel(std::make_shared<Net>(), ddp::Options().gradient_as_bucket_view(true).static_graph(true));
torch::optim::SGD optimizer(net->parameters(), 0.1);

void train(int steps) {
  for (int i = 0; i < steps; ++i) {
    net.zero_grad();
    net(torch::randn({4, 8})).square().mean().backward();
    optimizer.step();
    views.zero_grad();
    views(torch::randn({4, 8})).square().mean().backward();
  }
  for (const auto& wrapped : {net, views})
    for (const auto& parameter : wrapped.named_parameters())
      for (const auto& tensor : {parameter.value().detach(), parameter.value().grad()})
        for (const auto& other : dist::all_gather(tensor))
          if (!torch::equal(other, tensor)) throw std::runtime_error(parameter.key() + " differs between ranks");
}

// %% before any failure
train(3);

// %% rank 1 throws in forward, the others wait for it in backward tags=["raises-exception", "expects-finding=hang:hang"]
if (rank == 1) net->in_forward = [] { throw std::runtime_error("rank 1 fails in forward"); };
train(1);

// %% and all go on
net->in_forward = [] {};
train(3);

// %% rank 2 throws in the middle of a backward tags=["raises-exception", "expects-finding=hang:hang"]
if (rank == 2) net->in_backward = [] { throw std::runtime_error("rank 2 fails in backward"); };
train(1);

// %% and all go on again
net->in_backward = [] {};
net.sync_module_states();
train(3);

// %% rank 0 calls something else than the others tags=["raises-exception", "expects-finding"]
train(rank == 0 ? 1 : 2);

// %% the steps that ranks took may differ now: rank 0's values for all, then on
net.sync_module_states();
views.sync_module_states();
train(3);

// %% a forward whose backward is still to come
auto loss = net(torch::randn({4, 8})).square().mean();

// %% is of no use after a failure tags=["raises-exception", "expects-finding=hang:hang"]
if (rank == 0) throw std::runtime_error("before its collective");
dist::barrier();

// %% backward says so
std::string message;
try {
  loss.backward();
} catch (const std::exception& error) {
  message = error.what();
}
if (message.find("connected anew") == std::string::npos || message.find("zero_grad()") == std::string::npos)
  throw std::runtime_error("backward was to refuse, and said: " + message);

// %% and a new forward works
train(3);

// %% so does a join, with uneven numbers of batches
net.join([&] {
  for (int i = 0; i < 2 + rank; ++i) {
    net.zero_grad();
    net(torch::randn({4, 8})).square().mean().backward();
    optimizer.step();
  }
});
train(1);
