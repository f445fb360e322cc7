struct Net : torch::nn::Module {
  torch::nn::Conv2d conv1{torch::nn::Conv2dOptions(1, 16, 3).padding(1)};
  torch::nn::Conv2d conv2{torch::nn::Conv2dOptions(16, 16, 3).padding(1)};
  torch::nn::Linear fc{16 * 4 * 4, 10};

  Net() {
    register_module("conv1", conv1);
    register_module("conv2", conv2);
    register_module("fc", fc);
  }

  torch::Tensor forward(torch::Tensor images) {
    auto x = torch::relu(conv1(images));
    x = torch::max_pool2d(torch::relu(conv2(x)), 2);
    return fc(x.flatten(1));
  }
};
set_seed(@);
auto net = std::make_shared<Net>();
auto optimizer = std::make_unique<torch::optim::Adam>(net->parameters(), 1e-3);
