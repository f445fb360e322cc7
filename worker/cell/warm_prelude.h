// Has typical uses of LibTorch, as cells have them. Clang finds the templates instantiated here in the precompiled
// header, and the code for them is in a library that every rank has loaded: what stands here, no cell pays for.
#pragma once
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iomanip>
#include <iostream>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "worker/cell/cell.h"

namespace lockstep::warm {

struct Net : torch::nn::Module {
  torch::nn::Linear fc1{nullptr}, fc2{nullptr};
  torch::nn::Conv2d conv{nullptr};
  Net() {
    fc1 = register_module("fc1", torch::nn::Linear(3, 4));
    fc2 = register_module("fc2", torch::nn::Linear(torch::nn::LinearOptions(4, 2).bias(false)));
    conv = register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 2, 3).stride(1).padding(1)));
  }
  torch::Tensor forward(torch::Tensor x) { return fc2->forward(torch::relu(fc1->forward(x))); }
};

struct MlpImpl : torch::nn::Module {
  torch::nn::Linear fc{nullptr};
  MlpImpl() : fc(register_module("fc", torch::nn::Linear(3, 2))) {}
  torch::Tensor forward(torch::Tensor x) { return torch::relu(fc(x)); }
};
TORCH_MODULE(Mlp);

inline void training() {
  torch::manual_seed(1);
  auto x = torch::randn({4, 3});
  auto y = torch::tensor({0, 1, 0, 1}, torch::kLong);
  auto net = std::make_shared<Net>();
  torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  torch::optim::SGD plain_sgd(net->parameters(), 0.1);
  torch::optim::Adam adam(net->parameters(), torch::optim::AdamOptions(1e-3));
  torch::optim::Adam plain_adam(net->parameters(), 1e-3);
  torch::optim::AdamW adamw(net->parameters(), torch::optim::AdamWOptions(1e-3));
  auto closure = [&]() -> torch::Tensor {
    sgd.zero_grad();
    auto loss = torch::nn::functional::cross_entropy(net->forward(x), y);
    loss.backward();
    return loss;
  };
  std::cout << sgd.step(closure).item<float>() << std::endl;
  adam.step();
  for (auto& parameter : net->parameters()) parameter.mutable_grad() = torch::zeros_like(parameter);
  for (const auto& pair : net->named_parameters()) std::cout << pair.key() << pair.value().sizes() << '\n';
  {
    torch::NoGradGuard no_grad;
    std::cout << x << *net << x.sizes() << x.size(0) << x.dtype() << x.device() << "\n";
  }
  std::cout << x.sum().item<double>() << y.argmax(1).eq(y).sum().item<int64_t>() << std::endl;
  std::printf("%.4f\n", x.mean().item<float>());
  net->train();
  net->eval();
  net->to(torch::kCPU);
}

inline void containers() {
  Mlp mlp;
  torch::nn::Sequential sequential(torch::nn::Linear(3, 8), torch::nn::ReLU(), torch::nn::Dropout(0.1),
                                   torch::nn::Linear(8, 8), torch::nn::ReLU(), torch::nn::Linear(8, 2));
  torch::nn::Sequential convolution(torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 4, 3)), torch::nn::BatchNorm2d(4),
                                    torch::nn::MaxPool2d(2), torch::nn::Flatten(), torch::nn::Tanh(),
                                    torch::nn::Sigmoid(), torch::nn::LogSoftmax(1), torch::nn::BatchNorm1d(4));
  torch::nn::Sequential small(torch::nn::Linear(3, 8), torch::nn::Tanh(), torch::nn::Linear(8, 2));
  torch::nn::Sequential nested(mlp, torch::nn::Linear(2, 1));
  nested->push_back(torch::nn::GELU());
  torch::nn::ModuleList list;
  list->push_back(torch::nn::Linear(2, 2));
  std::cout << sequential->forward(torch::ones({2, 3})) << sequential << mlp;
  torch::save(mlp, "file");
  torch::load(mlp, "file");
  torch::save(sequential, "file");
  torch::load(sequential, "file");
  torch::Tensor tensor = torch::ones(2);
  torch::save(tensor, "file");
  torch::load(tensor, "file");
  std::vector<torch::Tensor> tensors{tensor, tensor};
  torch::save(tensors, "file");
  torch::load(tensors, "file");
  torch::optim::Adam adam(mlp->parameters(), 1e-3);
  torch::save(adam, "file");
  torch::load(adam, "file");
}

inline void data() {
  auto set = torch::data::datasets::TensorDataset(torch::randn({8, 3}))
                 .map(torch::data::transforms::Stack<torch::data::TensorExample>());
  auto loader = torch::data::make_data_loader(std::move(set), 4);
  int64_t seen = 0;
  for (auto& batch : *loader) seen += batch.data.size(0);
  auto pairs = torch::data::datasets::TensorDataset({torch::randn({8, 3}), torch::randn({8})});
  auto set2 = torch::data::datasets::TensorDataset(torch::randn({8, 3}))
                  .map(torch::data::transforms::Stack<torch::data::TensorExample>());
  auto in_order = torch::data::make_data_loader<torch::data::samplers::SequentialSampler>(
      std::move(set2), torch::data::DataLoaderOptions().batch_size(4).workers(0));
  for (auto& batch : *in_order) seen += batch.data.numel();
  std::printf("%ld\n", static_cast<long>(seen));
}

struct Square : torch::autograd::Function<Square> {
  static torch::Tensor forward(torch::autograd::AutogradContext* context, torch::Tensor x) {
    context->save_for_backward({x});
    return x * x;
  }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context,
                                               torch::autograd::tensor_list gradients) {
    return {2 * context->get_saved_variables()[0] * gradients[0]};
  }
};

inline void autograd() {
  auto x = torch::tensor({3.0}, torch::requires_grad());
  Square::apply(x).backward();
  std::cout << x.grad();
}

inline void data_parallel() {
  auto net = ddp::DistributedDataParallel(std::make_shared<Net>(),
                                          ddp::Options().gradient_as_bucket_view(true).bucket_cap_mb(1));
  auto from_holder = ddp::DistributedDataParallel(Mlp());
  auto simple = ddp::SimpleDistributedDataParallel(std::make_shared<Net>());
  torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1));
  torch::optim::AdamW adamw(net->parameters(), torch::optim::AdamWOptions(1e-3));
  const auto x = torch::randn({4, 3});
  {
    auto scope = net.no_sync();
    net(x).square().mean().backward();
  }
  (net(torch::randn({4, 3})).sum() / 2).backward();
  from_holder(x).sum().backward();
  simple(x).sum().backward();
  simple.sync_gradients();
  net.zero_grad();
  net.register_comm_hook([](ddp::GradBucket& bucket) { return ddp::allreduce_hook().run(bucket); });
  torch::save(net, "file");
  torch::load(net, "file");
  for (const auto& bucket : net.buckets()) std::cout << bucket.bytes << bucket.parameters;
  std::cout << net;
  auto sampler = ddp::random_sampler(8);
  sampler.next(4);
}

inline void objects() {
  std::vector<std::string> names{"a"};
  dist::broadcast_object_list(names);
  dist::all_gather_object(names[0]);
  dist::all_gather_object(1);
  dist::all_gather_object(int64_t{1});
  dist::all_gather_object(1.0);
  dist::all_gather_object(std::vector<int64_t>{1});
  dist::all_gather_object(std::vector<double>{1});
}

inline void standard_library() {
  std::vector<int> ints{3, 1, 2};
  std::sort(ints.begin(), ints.end());
  std::vector<float> floats(3);
  std::vector<double> doubles{1.0};
  std::vector<std::string> strings{"a"};
  std::vector<int64_t> longs{1};
  std::ifstream file("file");
  std::istringstream line("1,2");
  for (std::string word; std::getline(line, word, ',');) floats.push_back(std::stof(word));
  if (!file || !std::filesystem::exists("file")) throw std::runtime_error("no file");
  auto table = torch::tensor(floats).view({-1, 1});
  auto whole = torch::tensor(longs);
  std::map<std::string, int> counts{{"a", 1}};
  std::map<std::string, torch::Tensor> tensors;
  std::unordered_map<std::string, int> hashed{{"a", 1}};
  counts["b"] = 2;
  tensors["x"] = torch::ones(1);
  floats.push_back(1);
  doubles.push_back(2);
  strings.push_back("b");
  longs.push_back(2);
  ints.push_back(4);
  std::ostringstream stream;
  stream << 1 << 2.5 << "x" << std::string("y") << std::setw(3) << std::setprecision(4) << std::fixed << 'c' << 1L
         << 1UL << 1.0f << true;
  std::function<int(int)> twice = [](int a) { return 2 * a; };
  std::function<void()> nothing = [] {};
  nothing();
  std::thread thread([] { torch::NoGradGuard no_grad; });
  thread.join();
  auto now = std::chrono::steady_clock::now();
  std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - now;
  std::cout << stream.str() << twice(2) << elapsed.count() << std::accumulate(ints.begin(), ints.end(), 0)
            << std::to_string(1) + std::to_string(2.0) << std::endl;
}

inline void values() {
  int i = 1;
  int64_t l = 1;
  double d = 1;
  float f = 1;
  bool b = true;
  std::string s = "x";
  const char* c = "x";
  torch::Tensor t = torch::ones(2);
  std::vector<int> v{1};
  std::vector<double> vd{1};
  std::vector<torch::Tensor> vt{t};
  show(i);
  show(l);
  show(d);
  show(f);
  show(b);
  show(s);
  show(c);
  show(t);
  show(v);
  show(vd);
  show(vt);
  // A last expression is a name or a value.
  const auto show_both = [](auto& name) {
    show_value<0>(name);
    show_value<0>(std::remove_cvref_t<decltype(name)>(name));
  };
  show_both(i);
  show_both(l);
  show_both(d);
  show_both(f);
  show_both(b);
  show_both(t);
  show_both(s);
  show_both(v);
  show_both(vd);
  show_both(vt);
}

}  // namespace lockstep::warm

/// The prelude's library has to hold these.
#define LOCKSTEP_WARM_FUNCTIONS                                                                                   \
  reinterpret_cast<void*>(&lockstep::warm::training), reinterpret_cast<void*>(&lockstep::warm::containers),       \
      reinterpret_cast<void*>(&lockstep::warm::data), reinterpret_cast<void*>(&lockstep::warm::standard_library), \
      reinterpret_cast<void*>(&lockstep::warm::autograd), reinterpret_cast<void*>(&lockstep::warm::values),       \
      reinterpret_cast<void*>(&lockstep::warm::data_parallel), reinterpret_cast<void*>(&lockstep::warm::objects)
