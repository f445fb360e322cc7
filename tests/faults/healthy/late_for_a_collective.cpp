// A rank that computes for seconds before it joins.
// ranks: 2

// %% late
auto t = torch::ones({4});
const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(3500);
while (rank == 1 && std::chrono::steady_clock::now() < end) torch::randn({64, 64}).sum();
dist::all_reduce(t);
