// A module that is defined again, while the optimizer and the function that trains still have the older one.
// symptom: the model does not learn, although the loss falls
// run: `%grads net` after backward
// cause: objects made from a module keep that module when its name is defined again
// fix: make the optimizer again, and define the training function again
// ranks: 2
// severity: note
// exit: 0
// expect: grads:missing kind=gradient ranks=0-1 object=net

// %% model
struct Net : torch::nn::Module {
  torch::nn::Linear fc1{register_module("fc1", torch::nn::Linear(4, 8))};
  torch::nn::Linear fc2{register_module("fc2", torch::nn::Linear(8, 2))};
  torch::Tensor forward(const torch::Tensor& x) { return fc2(torch::relu(fc1(x))); }
};
set_seed(1);
auto net = std::make_shared<Net>();
torch::optim::SGD optimizer(net->parameters(), 0.1);
// %% training
void train() {
  optimizer.zero_grad();
  net->forward(torch::ones({4, 4})).square().mean().backward();
}
// %% once more from the beginning
auto net = std::make_shared<Net>();
train();
%grads net
