// Times of the compiler, from a request to its answer: JSON on stdout. With an argument it waits so many seconds before the
// first cell, in which the compiler may practise.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <thread>

#include "tests/compiler/cell_session.h"

int main(int argc, char** argv) {
  using namespace lockstep;
  using Clock = std::chrono::steady_clock;
  compiler_test::SessionSettings settings;
  settings.ranks = 2;
  settings.hosts = false;
  const auto begin = Clock::now();
  compiler_test::CellSession session(settings);
  const auto milliseconds = [](Clock::time_point since) {
    return std::chrono::duration<double, std::milli>(Clock::now() - since).count();
  };
  nlohmann::json report = {{"start_ms", milliseconds(begin)}};
  if (argc > 1) std::this_thread::sleep_for(std::chrono::duration<double>(std::atof(argv[1])));
  const std::vector<std::pair<const char*, std::string>> cells = {
      {"print tensor", "auto t = torch::ones({2, 3}); std::cout << t << std::endl;"},
      {"module and optimizer",
       "struct Net : torch::nn::Module { torch::nn::Linear fc{nullptr}; Net() { fc = register_module(\"fc\", "
       "torch::nn::Linear(3, 2)); } torch::Tensor "
       "forward(torch::Tensor x) { return torch::relu(fc->forward(x)); } }; auto net = std::make_shared<Net>(); auto "
       "opt = torch::optim::SGD(net->parameters(), 0.1);"},
      {"training loop",
       "for (int epoch = 0; epoch < 3; ++epoch) { auto closure = [&]() -> torch::Tensor { opt.zero_grad(); auto l = "
       "net->forward(t).pow(2).sum(); l.backward(); "
       "return l; }; auto loss = opt.step(closure); std::cout << \"epoch \" << epoch << \" loss \" << "
       "loss.item<float>() << std::endl; }"},
      {"class again",
       "struct Net : torch::nn::Module { torch::nn::Linear a{nullptr}, b{nullptr}; Net() { a = register_module(\"a\", "
       "torch::nn::Linear(3, 4)); b = "
       "register_module(\"b\", torch::nn::Linear(4, 2)); } torch::Tensor forward(torch::Tensor x) { return "
       "b->forward(torch::relu(a->forward(x))); } }; auto net = "
       "std::make_shared<Net>();"},
      {"TensorDataset, DataLoader",
       "auto ds = torch::data::datasets::TensorDataset(torch::randn({8, "
       "3})).map(torch::data::transforms::Stack<torch::data::TensorExample>()); auto loader = "
       "torch::data::make_data_loader(std::move(ds), 4); int nb = 0; for (auto& b : *loader) { nb += b.data.size(0); } "
       "printf(\"seen %d\\n\", nb);"},
      {"Sequential of six",
       "torch::nn::Sequential six(torch::nn::Linear(4, 8), torch::nn::ReLU(), torch::nn::Linear(8, 8), "
       "torch::nn::Tanh(), torch::nn::Dropout(0.5), "
       "torch::nn::Linear(8, 2)); std::cout << six->forward(torch::ones({1, 4})) << std::endl;"},
      {"autograd::Function",
       "class Sq : public torch::autograd::Function<Sq> { public: static torch::Tensor "
       "forward(torch::autograd::AutogradContext* c, torch::Tensor x) { "
       "c->save_for_backward({x}); return x * x; } static torch::autograd::tensor_list "
       "backward(torch::autograd::AutogradContext* c, torch::autograd::tensor_list g) { "
       "return {2 * c->get_saved_variables()[0] * g[0]}; } }; auto xx = torch::tensor({3.0}, torch::requires_grad()); "
       "Sq::apply(xx).backward();"},
  };
  const auto timed = [&](const std::string& text, protocol::Compile request = {}) {
    const auto start = Clock::now();
    auto outcome = session.compile(text, std::move(request));
    const double ms = milliseconds(start);
    if (outcome.compiled.status != CompileStatus::ok) throw std::runtime_error(outcome.compiled.rendered);
    protocol::Settle settle{outcome.compiled.cell, true, {}};
    for (int rank : {0, 1}) settle.steps_done[rank] = 1000;
    session.ask(settle);
    return std::pair(ms, outcome.frames.at(0).size());
  };
  const auto note = [&](const std::string& name, std::pair<double, size_t> result) {
    report["cells"].push_back({{"name", name}, {"ms", result.first}, {"object_bytes", result.second}});
  };
  timed("int first = 1;");
  for (const auto& [name, text] : cells) note(name, timed(text));
  for (const auto& [name, text] : cells) {
    protocol::Compile debug;
    debug.debug = true;
    note(std::string(name) + ", debug", timed(text, debug));
  }
  std::vector<double> trivial;
  size_t size = 0;
  for (int i = 0; i < 200; ++i) {
    const auto [ms, bytes] = timed(i % 2 == 0 ? "int k = " + std::to_string(i) + ";" : "k + " + std::to_string(i));
    trivial.push_back(ms);
    size = bytes;
  }
  const auto median = [](std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
  };
  report["trivial"] = {{"median_ms", median(trivial)},
                       {"first_20_ms", median({trivial.begin(), trivial.begin() + 20})},
                       {"last_20_ms", median({trivial.end() - 20, trivial.end()})},
                       {"object_bytes", size}};
  std::cout << report.dump(1) << std::endl;
}
