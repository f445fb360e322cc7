// %% [markdown]
// # A stuck collective is aborted, and tensors stay
// The last rank does not come to an `all_reduce`. The others wait, on a GPU in a kernel of NCCL that no host can interrupt. `lockstep run` proves
// the hang, aborts the communicators and makes new ones. Tensors keep their values, and the next collective works.
//
//     lockstep run scripts/devices/abort-a-stuck-collective.cpp -n 2

// %% tensors that have to stay
#include <chrono>

if (world_size < 2) throw std::runtime_error("one rank waits for nobody: run this with -n 2 or more");
auto kept = torch::arange(1 << 20, at::TensorOptions(device).dtype(torch::kLong));
auto work = torch::ones({1 << 20}, device);
dist::all_reduce(work);
auto began = std::chrono::steady_clock::now();

// %% one rank does not come tags=["expects-finding=hang:hang"]
began = std::chrono::steady_clock::now();
if (rank != world_size - 1) {
  dist::all_reduce(work);
  std::cout << work.sum().item<double>() << '\n';  // on a GPU, the host waits here
}

// %% a collective works again
const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
auto ones = torch::ones({4}, device);
dist::all_reduce(ones);
if (ones[0].item<double>() != world_size) throw std::runtime_error("the sum over the ranks is wrong after the abort");
if (rank == 0) std::cout << "figure abort_stuck_collective " << std::fixed << std::setprecision(6) << seconds << " s\n";

// %% and tensors have stayed
if (!torch::equal(kept.to(torch::kCPU), torch::arange(1 << 20, torch::kLong))) throw std::runtime_error("a tensor has changed");
kept.sum().item<int64_t>()
