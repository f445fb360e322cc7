// Rank 0 evaluates with the wrapper, which broadcasts buffers, while the others wait in a barrier.
// symptom: a hang in the first evaluation
// run: nothing: reported before data moves
// cause: all ranks have to call a wrapper's forward
// fix: evaluate with the module itself: `net->forward(x)`
// thread: LibreYOLO/libreyolo#594
// ranks: 3
// expect: collectives:op_mismatch ranks=0 reference=1-2

// %% evaluate
set_seed(1);
auto net = ddp::DistributedDataParallel(torch::nn::BatchNorm1d(4));
net(torch::randn({8, 4})).sum().backward();
if (rank == 0) {
  auto score = net(torch::randn({8, 4})).sum().item<double>();
  std::cout << "score " << score << '\n';
}
dist::barrier();
