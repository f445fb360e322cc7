// run: -n 4
// %% [markdown]
// # One of two groups hangs, and the other goes on
// The ranks are split into two halves, each a group with its own communicator. A rank of the first half does not come to its collective. The second
// half finishes, the first is aborted, and all groups work again in the next cell.
//
//     lockstep run scripts/devices/abort-in-one-of-two-groups.cpp -n 4

// %% two halves
if (world_size < 4) throw std::runtime_error("half of the ranks must be two or more: run this with -n 4 or more");
const int middle = world_size / 2;
std::vector<int> first, second;
for (int each = 0; each < world_size; ++each) (each < middle ? first : second).push_back(each);
auto first_half = dist::new_group(first);
auto second_half = dist::new_group(second);
auto& half = rank < middle ? first_half : second_half;
const int ranks_of_half = static_cast<int>((rank < middle ? first : second).size());

void check_sums() {
  auto sum = torch::ones({1 << 20}, device), total = sum.clone();
  dist::all_reduce(sum, dist::ReduceOp::SUM, half);
  dist::all_reduce(total);
  if (sum[0].item<double>() != ranks_of_half) throw std::runtime_error("the sum over the half is wrong");
  if (total[0].item<double>() != world_size) throw std::runtime_error("the sum over all ranks is wrong");
}
for (int i = 0; i < 10; ++i) check_sums();

// %% rank 1 does not come to its half tags=["expects-finding=hang:hang"]
auto stuck = torch::ones({1 << 20}, device);
if (rank != 1) {
  dist::all_reduce(stuck, dist::ReduceOp::SUM, half);
  std::cout << stuck[0].item<double>() << '\n';
}

// %% both halves work, and all ranks together
for (int i = 0; i < 10; ++i) check_sums();
