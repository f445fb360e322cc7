// A plain LibTorch program on liblockstep: makes the group, sums over the ranks, writes the result.
#include <lockstep/dist.h>
#include <torch/torch.h>

#include <fstream>

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  namespace dist = lockstep::dist;
  dist::init_process_group("gloo", std::string("file://") + argv[1]);
  auto sum = torch::full({4}, dist::get_rank() + 1.0);
  dist::all_reduce(sum);
  std::ofstream(argv[2]) << "rank " << dist::get_rank() << " of " << dist::get_world_size() << ": sum "
                         << sum[3].item<double>() << ", interposer: " << dist::is_interposer_active() << '\n';
  dist::destroy_process_group();
}
