// %% what a rank sees
std::cout << "rank " << rank << " of " << world_size << " on " << device << ", GPU " << gpu_id << ", "
          << dist::get_backend() << std::endl;
auto t = torch::full({4}, rank + 1.0, device);
dist::all_reduce(t);
if (t[0].item<double>() != world_size * (world_size + 1) / 2.0) throw std::runtime_error("all_reduce");

// %% set_seed seeds the device
set_seed(5);
auto first = torch::randn({8}, device);
set_seed(5);
if (!first.equal(torch::randn({8}, device))) throw std::runtime_error("set_seed");

// %% replicas
auto net = torch::nn::Linear(8, 8);
net->to(device);
auto ddp_net = ddp::DistributedDataParallel(net);
ddp_net(torch::ones({2, 8}, device) * (rank + 1)).sum().backward();
// %verify ddp_net
