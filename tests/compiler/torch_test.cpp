// Cells with LibTorch, as lessons have them.
#include "tests/compiler/transcript.h"

namespace lockstep::compiler_test {
namespace {

TEST(Torch, ASessionOnThreeRanks) {
  check_transcript(
      {
          {"auto t = torch::ones({2, 3}); std::cout << t.sizes() << std::endl;", "[2, 3]\n"},
          {"t", "=> tensor[2, 3]\n"},
          {"struct Net : torch::nn::Module {\n  torch::nn::Linear fc{nullptr};\n  Net() { fc = register_module(\"fc\", "
           "torch::nn::Linear(3, 2)); }\n"
           "  torch::Tensor forward(torch::Tensor x) { return torch::relu(fc->forward(x)); }\n};\n"
           "auto net = std::make_shared<Net>();\nauto opt = torch::optim::SGD(net->parameters(), 0.1);",
           ""},
          {"int steps = 0;\nfor (int epoch = 0; epoch < 3; ++epoch) {\n  auto closure = [&]() -> torch::Tensor { "
           "opt.zero_grad(); auto l = "
           "net->forward(t).pow(2).sum(); l.backward(); return l; };\n  auto loss = opt.step(closure);\n  steps += "
           "std::isfinite(loss.item<float>());\n}\nsteps",
           "=> 3\n"},
          {"struct Net : torch::nn::Module {\n  torch::nn::Linear a{nullptr}, b{nullptr};\n  Net() { a = "
           "register_module(\"a\", torch::nn::Linear(3, 4)); "
           "b = register_module(\"b\", torch::nn::Linear(4, 2)); }\n  torch::Tensor forward(torch::Tensor x) { return "
           "b->forward(torch::relu(a->forward(x))); }\n};\n"
           "auto old = net;\nauto net = std::make_shared<Net>();",
           ""},
          {"std::cout << net->forward(t).sizes() << net->parameters().size() << old->parameters().size() << std::endl;",
           "[2, 2]42\n"},
          {"struct MLPImpl : torch::nn::Module { torch::nn::Linear fc{nullptr}; MLPImpl() { fc = "
           "register_module(\"fc\", torch::nn::Linear(3, 2)); } "
           "torch::Tensor forward(torch::Tensor x) { return fc->forward(x); } };\nTORCH_MODULE(MLP);\nMLP "
           "m;\ntorch::nn::Sequential seq(m, torch::nn::Linear(2, 1));\n"
           "std::cout << seq->forward(t).sizes() << std::endl;",
           "[2, 1]\n"},
          {"auto ds = torch::data::datasets::TensorDataset(torch::randn({8, "
           "3})).map(torch::data::transforms::Stack<torch::data::TensorExample>());\n"
           "auto loader = torch::data::make_data_loader(std::move(ds), 4);\nint nb = 0;\nfor (auto& b : *loader) { nb "
           "+= b.data.size(0); }\nnb",
           "=> 8\n"},
          {"class Sq : public torch::autograd::Function<Sq> { public: static torch::Tensor "
           "forward(torch::autograd::AutogradContext* c, torch::Tensor x) { "
           "c->save_for_backward({x}); return x * x; } static torch::autograd::tensor_list "
           "backward(torch::autograd::AutogradContext* c, "
           "torch::autograd::tensor_list g) { return {2 * c->get_saved_variables()[0] * g[0]}; } };\n"
           "auto xx = torch::tensor({3.0}, torch::requires_grad());\nauto yy = "
           "Sq::apply(xx);\nyy.backward();\nxx.grad().item<double>()",
           "=> 6\n"},
          {"std::thread th([] { torch::NoGradGuard g; std::cout << \"thr \" << torch::ones(2).sum().item<float>() << "
           "std::endl; }); th.join();",
           "thr 2\n"},
          {"std::stringstream file; torch::save(m, file); MLP m2; torch::load(m2, "
           "file);\ntorch::allclose(m->fc->weight, m2->fc->weight)",
           "=> true\n"},
          {"torch::nn::Sequential six(torch::nn::Linear(4, 8), torch::nn::ReLU(), torch::nn::Linear(8, 8), "
           "torch::nn::Tanh(), torch::nn::Dropout(0.5), "
           "torch::nn::Linear(8, 2));\nsix->forward(torch::ones({1, 4})).sizes()",
           "=> [1, 2]\n"},
          {"torch::manual_seed(0); auto a = torch::rand({3}); torch::manual_seed(0); torch::equal(a, torch::rand({3}))",
           "=> true\n"},
      },
      3);
}

}  // namespace
}  // namespace lockstep::compiler_test
