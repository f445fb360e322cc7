// Gradients are summed in half precision: each rank's fits, their sum does not.
// symptom: Inf with two nodes, none with one
// run: `%grads net --watch on`, and `%grads net`
// cause: the sum over ranks is larger than 65504
// fix: divide before summing, or reduce in bfloat16 (`ddp::bf16_compress_hook`)
// ranks: 2
// expect: grads:inf kind=gradient ranks=0-1 object=net tensor=weight

// %% reduce in half precision
set_seed(1);
torch::nn::Linear net(4, 2);
%grads net --watch on
(net(torch::ones({1, 4})).sum() * 40000).backward();
for (auto& parameter : net->parameters()) {
  auto small = parameter.grad().to(torch::kHalf);
  dist::all_reduce(small);
  parameter.mutable_grad().copy_(small).div_(world_size);
}
%grads net
