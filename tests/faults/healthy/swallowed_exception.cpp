// A rank whose exception is caught, and which makes the collective all the same.
// ranks: 2

// %% a bad sample
auto loss = torch::ones({1});
try {
  if (rank == 1) throw std::runtime_error("a broken image");
} catch (const std::exception&) {
  loss.zero_();
}
dist::all_reduce(loss);
