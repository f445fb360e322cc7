// Running statistics between two forwards of a wrapper: each forward begins with rank 0's and then writes them.
// thread: huggingface/pytorch-image-models#110
// ranks: 2
// ok: verify

// %% train
set_seed(1);
auto module = torch::nn::Sequential(torch::nn::Linear(4, 8), torch::nn::BatchNorm1d(8));
auto net = ddp::DistributedDataParallel(module);
set_seed(100 + rank);
for (int step = 0; step < 2; ++step) net.forward_as<torch::Tensor>(torch::randn({8, 4})).square().mean().backward();
%verify net
