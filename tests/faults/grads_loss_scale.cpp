// Each rank's loss scaler has a scale of its own.
// symptom: one rank's gradients dominate the others'
// run: `%grads net --local` before the reduction
// cause: a GradScaler for each rank, whose scales differ from the first overflow on
// fix: one scale for all: all-reduce "found inf", update together
// thread: pytorch/pytorch#136009
// ranks: 3
// severity: note
// exit: 0
// expect: grads:outlier kind=gradient ranks=1 reference=0,2 object=net

// %% a scale of its own
struct Net : torch::nn::Module {
  torch::nn::Linear fc1{register_module("fc1", torch::nn::Linear(4, 8))};
  torch::nn::Linear fc2{register_module("fc2", torch::nn::Linear(8, 2))};
  torch::Tensor forward(const torch::Tensor& x) { return fc2(torch::relu(fc1(x))); }
};
set_seed(1);
auto net = std::make_shared<Net>();
set_seed(100 + rank);
const double scale = rank == 1 ? 65536 : 1024;
(net->forward(torch::randn({16, 4})).square().mean() * scale).backward();
%grads net --local
