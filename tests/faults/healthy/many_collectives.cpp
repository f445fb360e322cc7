// Collectives for seconds, each of which ends: long, and it goes on, under a limit that is shorter than all of them together.
// ranks: 2
// options: --hang-timeout 2

// %% train
auto t = torch::ones({256, 1024});
const auto begin = std::chrono::steady_clock::now();
auto goes_on = torch::ones({1});
while (goes_on.item<float>() > 0) {
  dist::all_reduce(t, dist::ReduceOp::AVG);
  goes_on[0] = std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(3500) ? 1 : 0;
  dist::broadcast(goes_on, 0);
}
