// %% [markdown]
// # LibTorch at the prompt
// What people build with LibTorch in cells: modules by hand and by TORCH_MODULE, containers, optimizers, data loaders, saving, autograd functions.

// %% tensors are shown as torch prints them
auto t = torch::ones({2, 3});
t

// %% a module
struct Net : torch::nn::Module {
  torch::nn::Linear fc{nullptr};
  Net() { fc = register_module("fc", torch::nn::Linear(3, 2)); }
  torch::Tensor forward(torch::Tensor x) { return torch::relu(fc->forward(x)); }
};
set_seed(0);
auto net = std::make_shared<Net>();
auto optimizer = torch::optim::SGD(net->parameters(), 0.1);

// %% prints without a trace of how cells are kept apart
std::cout << *net << '\n' << c10::demangle(typeid(*net).name()) << '\n';

// %% a closure
for (int epoch = 0; epoch < 3; ++epoch) {
  auto closure = [&]() -> torch::Tensor {
    optimizer.zero_grad();
    auto loss = net->forward(t).pow(2).sum();
    loss.backward();
    return loss;
  };
  auto loss = optimizer.step(closure);
  if (!std::isfinite(loss.item<float>())) throw std::logic_error("loss");
}

// %% the same name, another layout
struct Net : torch::nn::Module {
  torch::nn::Linear a{nullptr}, b{nullptr};
  Net() {
    a = register_module("a", torch::nn::Linear(3, 4));
    b = register_module("b", torch::nn::Linear(4, 2));
  }
  torch::Tensor forward(torch::Tensor x) { return b->forward(torch::relu(a->forward(x))); }
};
auto older = net;
auto net = std::make_shared<Net>();
std::cout << *net << '\n';
if (older->parameters().size() != 2 || net->parameters().size() != 4) throw std::logic_error("layouts");

// %% TORCH_MODULE and Sequential
struct MLPImpl : torch::nn::Module {
  torch::nn::Linear fc{nullptr};
  MLPImpl() { fc = register_module("fc", torch::nn::Linear(3, 2)); }
  torch::Tensor forward(torch::Tensor x) { return fc->forward(x); }
};
TORCH_MODULE(MLP);
MLP m;
torch::nn::Sequential seq(m, torch::nn::Linear(2, 1));
seq->forward(t).sizes()

// %% a data set and a loader
auto ds = torch::data::datasets::TensorDataset(torch::randn({8, 3})).map(torch::data::transforms::Stack<torch::data::TensorExample>());
auto loader = torch::data::make_data_loader(std::move(ds), 4);
int64_t seen = 0;
for (auto& batch : *loader) seen += batch.data.size(0);
seen

// %% a data set of one's own
struct Squares : torch::data::datasets::Dataset<Squares> {
  torch::data::Example<> get(size_t index) override {
    auto value = torch::full({1}, static_cast<float>(index));
    return {value, value * value};
  }
  torch::optional<size_t> size() const override { return 10; }
};
auto squares = torch::data::make_data_loader<torch::data::samplers::SequentialSampler>(
    Squares().map(torch::data::transforms::Stack<>()), torch::data::DataLoaderOptions().batch_size(5).workers(1));
float total = 0;
for (auto& batch : *squares) total += batch.target.sum().item<float>();
total

// %% saving and loading
std::stringstream archive;
torch::save(m, archive);
MLP m2;
torch::load(m2, archive);
torch::equal(m->fc->weight, m2->fc->weight)

// %% an autograd function
class Square : public torch::autograd::Function<Square> {
 public:
  static torch::Tensor forward(torch::autograd::AutogradContext* context, torch::Tensor x) {
    context->save_for_backward({x});
    return x * x;
  }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context, torch::autograd::tensor_list gradients) {
    return {2 * context->get_saved_variables()[0] * gradients[0]};
  }
};
auto xx = torch::tensor({3.0}, torch::requires_grad());
Square::apply(xx).backward();
xx.grad()

// %% the error of an operator, with its line tags=["raises-exception"]
auto left = torch::ones({2, 3});
auto right = torch::ones({2, 3});
left.matmul(right)

// %% names before the throw are kept
left.sizes()

// %% threads
std::thread([] {
  torch::NoGradGuard guard;
  std::cout << "in a thread: " << torch::ones(2).sum().item<float>() << '\n';
}).join();

// %% indexing
using namespace torch::indexing;
auto grid = torch::arange(12).view({3, 4});
grid.index({Slice(1), 2})

// %% functional
auto probabilities = torch::nn::functional::softmax(torch::zeros({4}), torch::nn::functional::SoftmaxFuncOptions(0));
probabilities.sum().item<double>()

// %% collectives
auto shared = torch::full({3}, rank + 1.0);
dist::all_reduce(shared);
shared[0].item<double>() == world_size * (world_size + 1) / 2.0
