// Trains a small convolutional network on handwritten digits, on one rank or many:
//
//   ./train ../../scripts/data/digits.csv                                          alone
//   torchrun --standalone --no-python --nproc_per_node=2 ./train DIGITS.csv        RANK, WORLD_SIZE, MASTER_* come from torchrun
//   mpirun -n 2 ./train DIGITS.csv                                                 this program translates Open MPI's variables
//
// Every rank takes its share of each global batch, so the loss does not depend on how many there are. A slip on rank 1
// shows what Lockstep says of it: `./train DIGITS.csv 2 drift` changes a weight, `skip` leaves a collective out.
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>

#include <lockstep/ddp.h>
#include <lockstep/dist.h>
#include <lockstep/inspect.h>

namespace dist = lockstep::dist;
namespace ddp = lockstep::ddp;
namespace inspect = lockstep::inspect;

struct Net : torch::nn::Module {
  torch::nn::Conv2d conv1{register_module("conv1", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 16, 3).padding(1)))};
  torch::nn::BatchNorm2d norm{register_module("norm", torch::nn::BatchNorm2d(16))};
  torch::nn::Conv2d conv2{register_module("conv2", torch::nn::Conv2d(torch::nn::Conv2dOptions(16, 32, 3).padding(1)))};
  torch::nn::Linear fc{register_module("fc", torch::nn::Linear(32 * 4 * 4, 10))};
  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(norm(conv1(x)));
    return fc(torch::max_pool2d(torch::relu(conv2(x)), 2).flatten(1));
  }
};

struct Digits {
  torch::Tensor images, labels;  // [N, 1, 8, 8] float32 from 0 to 1; [N] int64
};

Digits read_digits(const std::string& path) {
  std::ifstream file(path);
  if (!file)
    throw std::runtime_error("cannot read " + path +
                             ": give the path of digits.csv (scripts/data/digits.csv in Lockstep's checkout)");
  std::vector<float> numbers;
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    for (std::string field; std::getline(fields, field, ',');) numbers.push_back(std::stof(field));
  }
  const auto table = torch::tensor(numbers).view({-1, 65});  // 64 pixels, then the digit
  return {(table.narrow(1, 0, 64) / 16).reshape({-1, 1, 8, 8}), table.select(1, 64).to(torch::kLong)};
}

// mpirun has no MASTER_ADDR to give, and its ranks under other names. On one machine a file is enough to meet.
dist::InitOptions meeting_of_mpirun() {
  dist::InitOptions options;
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  const char* size = std::getenv("OMPI_COMM_WORLD_SIZE");
  if (!rank || !size || std::getenv("RANK")) return options;
  setenv("RANK", rank, 1);
  setenv("WORLD_SIZE", size, 1);
  if (!std::getenv("MASTER_ADDR")) {
    const char* folder = std::getenv("OMPI_MCA_orte_top_session_dir");
    if (!folder)
      throw std::runtime_error(
          "mpirun on several machines: say where the ranks meet, mpirun -x MASTER_ADDR=HOST -x MASTER_PORT=PORT …");
    options.init_method = std::string("file://") + folder + "/lockstep_train";
  }
  return options;
}

int main(int argc, char** argv) try {
  if (argc < 2 || argc > 4) {
    std::cerr << "usage: train DIGITS.csv [EPOCHS [drift|skip]]\n";
    return 2;
  }
  const int epochs = argc > 2 ? std::stoi(argv[2]) : 3;
  const std::string slip = argc > 3 ? argv[3] : "";
  torch::set_num_threads(1);  // ranks share this machine's cores
  dist::init_process_group(meeting_of_mpirun());
  const int64_t ranks = dist::get_world_size(), rank = dist::get_rank();
  const auto digits = read_digits(argv[1]);

  constexpr int64_t kGlobalBatch = 64;
  const int64_t share = kGlobalBatch / ranks;
  if (share * ranks != kGlobalBatch)
    throw std::runtime_error("64 samples a step do not divide by " + std::to_string(ranks) + " ranks");
  torch::manual_seed(1);
  auto module = std::make_shared<Net>();
  ddp::convert_sync_batchnorm(*module);  // statistics of the whole batch, so that the number of ranks does not show
  auto net = ddp::DistributedDataParallel(module, ddp::Options().gradient_as_bucket_view(true));
  torch::optim::SGD optimizer(net.parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  const auto watching = inspect::watch(net, 10, inspect::VerifyOptions().name("net"));  // every 10 steps

  for (int epoch = 0; epoch < epochs; ++epoch) {
    const auto order = torch::randperm(digits.labels.size(0), torch::make_generator<torch::CPUGeneratorImpl>(epoch));
    auto sum = torch::zeros({});
    int64_t batches = 0;
    for (int64_t begin = 0; begin + kGlobalBatch <= order.size(0); begin += kGlobalBatch, ++batches) {
      const auto mine = order.narrow(0, begin + rank * share, share);
      net.zero_grad();
      const auto loss = torch::nn::functional::cross_entropy(net(digits.images.index_select(0, mine)),
                                                             digits.labels.index_select(0, mine));
      loss.backward();
      optimizer.step();
      sum += loss.detach();
    }
    if (slip == "drift" && rank == 1) module->fc->bias.detach().add_(0.01);
    if (slip == "skip" && rank == 1) continue;
    dist::all_reduce(sum, dist::ReduceOp::AVG);
    if (ddp::is_main_rank())
      std::cout << "epoch " << epoch << ": loss " << sum.item<float>() / static_cast<float>(batches) << std::endl;
  }
  if (ddp::is_main_rank()) torch::save(net, "digits.pt");
  dist::destroy_process_group();
  return 0;
} catch (const std::exception& error) {
  std::cerr << "train: " + std::string(error.what()) + "\n";  // in one piece: other ranks write to the same terminal
  return 1;
}
