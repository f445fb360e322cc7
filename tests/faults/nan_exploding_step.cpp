// A step that is so large that parameters leave the range of float.
// symptom: Inf in the parameters after finite gradients
// run: `%nan on` before training
// cause: a learning rate that is too large
// fix: a lower one, warm-up, gradient clipping
// ranks: 2
// expect: nan:inf kind=optimizer ranks=0-1 object=net step=1

// %% model
set_seed(1);
auto net = ddp::DistributedDataParallel(torch::nn::Linear(4, 2));
torch::optim::SGD optimizer(net.parameters(), 1e38);
%nan on
// %% train
net.zero_grad();
(net(torch::ones({4, 4})).sum() * 100).backward();
optimizer.step();
