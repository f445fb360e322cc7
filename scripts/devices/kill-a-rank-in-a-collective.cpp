// %% [markdown]
// # A rank is killed in a collective, and the others go on
// The last rank enters an `all_reduce` and is killed there, while rank 0 has not come yet: on a GPU in a kernel of NCCL. The others get an exception
// at once, leave the collective, and make a group of their own in the next cell. Tensors keep their values.
//
//     lockstep run scripts/devices/kill-a-rank-in-a-collective.cpp -n 4

// %% tensors that have to stay
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <numeric>
#include <thread>

if (world_size < 2) throw std::runtime_error("a rank of one alone has nobody who goes on: run this with -n 2 or more");
const int ranks_before = world_size;
auto kept = torch::arange(1 << 20, at::TensorOptions(device).dtype(torch::kLong));
auto work = torch::ones({1 << 20}, device);
dist::all_reduce(work);
std::chrono::steady_clock::time_point killed_at;

// %% the last rank is killed tags=["expects-finding=hang:dead"]
killed_at = std::chrono::steady_clock::now() + std::chrono::milliseconds(500);
if (rank == world_size - 1)
  std::thread([] {
    std::this_thread::sleep_until(killed_at);
    ::kill(::getpid(), SIGKILL);
  }).detach();
if (rank == 0) std::this_thread::sleep_until(killed_at + std::chrono::milliseconds(500));
try {
  dist::all_reduce(work);
  std::cout << work.sum().item<double>() << '\n';  // on a GPU, the host waits here
} catch (const dist::Error&) {
  // PeerLeft where the connection has told the rank, Aborted where the session has.
}

// %% those that are left make a group
const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - killed_at).count();
std::vector<int> left(ranks_before - 1);
std::iota(left.begin(), left.end(), 0);
auto group = dist::new_group(left);
auto ones = torch::ones({4}, device);
dist::all_reduce(ones, dist::ReduceOp::SUM, group);
if (ones[0].item<double>() != ranks_before - 1) throw std::runtime_error("the sum is not that of the ranks that are left");
if (rank == 0) std::cout << "figure next_collective_after_a_death " << std::fixed << std::setprecision(6) << seconds << " s\n";

// %% and tensors have stayed
if (!torch::equal(kept.to(torch::kCPU), torch::arange(1 << 20, torch::kLong))) throw std::runtime_error("a tensor has changed");
kept.sum().item<int64_t>()
