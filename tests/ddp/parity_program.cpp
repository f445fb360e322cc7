// The C++ side of parity.py: writes initial weights and batches into a folder, trains on them, and prints what the
// Python side is compared with: losses, buckets before and after they are rebuilt, and the file with the trained
// weights.
//
//   ddp_parity FOLDER RANKS MODEL VIEWS(0|1)     MODEL: mlp, conv
#include <cstdio>
#include <iostream>
#include <mutex>
#include <nlohmann/json.hpp>

#include "ddp/distributed_data_parallel.h"
#include "tests/ddp/models.h"
#include "tests/ddp/ranks.h"

namespace {

using namespace lockstep;
constexpr int kSteps = 50;
constexpr int64_t kBatch = 24;

template <class M>
int train(const std::string& folder, int ranks, bool views) {
  auto initial = std::make_shared<M>();
  test::fill_parameters(*initial, 7);
  torch::save(initial, folder + "/initial.pt");
  const auto x = test::random_tensor({kSteps, kBatch, 8}, 1);
  const auto y = (test::random_tensor({kSteps, kBatch}, 2) * 2).to(torch::kLong).remainder(4);
  torch::save(x, folder + "/x.pt");
  torch::save(y, folder + "/y.pt");

  std::vector<std::vector<double>> losses(ranks);
  nlohmann::json result;
  const auto errors = test::errors_of_ranks(ranks, [&](test::Rank& rank) {
    auto module = std::make_shared<M>();
    torch::load(module, folder + "/initial.pt");
    // Caps small enough for several buckets.
    auto net = ddp::DistributedDataParallel(
        module, ddp::Options().process_group(rank.group).bucket_cap_mb(5e-4).gradient_as_bucket_view(views));
    torch::optim::SGD optimizer(module->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
    const auto buckets = [&] {
      nlohmann::json list;
      for (const auto& bucket : net.buckets()) list.push_back(bucket.parameters);
      return list;
    };
    const auto before = buckets();
    const int64_t share = kBatch / rank.size;
    for (int step = 0; step < kSteps; ++step) {
      net.zero_grad();
      const auto loss = torch::nn::functional::cross_entropy(net(x[step].narrow(0, rank.rank * share, share)),
                                                             y[step].narrow(0, rank.rank * share, share));
      loss.backward();
      optimizer.step();
      losses[rank.rank].push_back(loss.template item<double>());
    }
    if (rank.rank == 0) {
      result["buckets_before"] = before;
      result["buckets_after"] = buckets();
      torch::save(net, folder + "/trained.pt");
    }
  });
  for (const auto& error : errors) {
    if (error.empty()) continue;
    std::cerr << error << '\n';
    return 1;
  }
  result["losses"] = losses;
  std::cout << result.dump() << std::endl;
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::cerr << "usage: ddp_parity FOLDER RANKS mlp|conv 0|1\n";
    return 2;
  }
  const std::string model = argv[3];
  const int ranks = std::atoi(argv[2]);
  const bool views = std::atoi(argv[4]) != 0;
  if (model == "mlp") return train<test::MlpImpl>(argv[1], ranks, views);
  if (model == "conv") return train<test::ConvNetImpl>(argv[1], ranks, views);
  std::cerr << "no model " << model << '\n';
  return 2;
}
