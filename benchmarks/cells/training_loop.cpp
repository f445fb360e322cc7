for (int step = 0; step < 3; ++step) {
  auto begin = (@ + step) * world_size + rank;
  auto loss = torch::cross_entropy_loss(net->forward(images.narrow(0, begin, 4)), labels.narrow(0, begin, 4));
  loss.backward();
  for (const auto& parameter : net->parameters()) {
    dist::all_reduce(parameter.grad());
    parameter.grad().div_(world_size);
  }
  optimizer->step();
  optimizer->zero_grad();
  if (rank == 0) std::cout << "step " << step << " loss " << loss.item<float>() << '\n';
}
