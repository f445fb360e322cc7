// One rank's batch has no masks, so its mask head gets no gradient.
// symptom: ranks call all_reduce different numbers of times, and hang or mix up gradients
// run: `%grads net --local` before the reduction
// cause: a branch that depends on the batch
// fix: add the head's output times zero to the loss, or `find_unused_parameters(true)` with DistributedDataParallel
// thread: pytorch/pytorch#112152
// ranks: 3
// expect: grads:missing kind=gradient ranks=2 reference=0-1 object=net tensors=masks.weight,masks.bias

// %% a branch by data
struct Net : torch::nn::Module {
  torch::nn::Linear boxes{register_module("boxes", torch::nn::Linear(4, 4))};
  torch::nn::Linear masks{register_module("masks", torch::nn::Linear(4, 2))};
  torch::Tensor forward(const torch::Tensor& x, bool has_masks) {
    auto loss = boxes(x).square().mean();
    return has_masks ? loss + masks(x).square().mean() : loss;
  }
};
set_seed(1);
auto net = ddp::SimpleDistributedDataParallel(std::make_shared<Net>());
set_seed(100 + rank);
net(torch::randn({4, 4}), rank != 2).backward();
%grads net --local
