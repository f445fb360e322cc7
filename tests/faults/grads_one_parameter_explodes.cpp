// One rank's data has words that all come to one row of the embedding, whose gradient is then far larger than anything else.
// symptom: one rank's gradients dominate the others'
// run: `%grads net --local` before the reduction
// cause: in one rank's share of the data, ids beyond the vocabulary are mapped to one word
// fix: check that rank's data; if it is intended, clip on each rank before the reduction
// ranks: 3
// severity: note
// exit: 0
// expect: grads:outlier kind=gradient ranks=2 reference=0-1 object=net tensors=embed.weight

// %% a share of its own
struct Net : torch::nn::Module {
  torch::nn::Embedding embed{register_module("embed", torch::nn::Embedding(50, 4))};
  torch::nn::Linear fc1{register_module("fc1", torch::nn::Linear(4, 4))};
  torch::nn::Linear fc2{register_module("fc2", torch::nn::Linear(4, 1))};
  torch::Tensor forward(const torch::Tensor& words, double weight) {
    auto x = embed(words);
    return fc2(torch::tanh(fc1(x.detach()))).mean() + weight * x.square().sum();
  }
};
set_seed(1);
auto net = std::make_shared<Net>();
set_seed(100 + rank);
auto words = rank == 2 ? torch::zeros({64}, torch::kLong) : torch::randint(50, {64});
net->forward(words, rank == 2 ? 10.0 : 0.001).backward();
%grads net --local
