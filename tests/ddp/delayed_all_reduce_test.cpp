// Options delay_all_reduce_named_params and param_to_hook_all_reduce.
#include <sstream>

#include "ddp/distributed_data_parallel.h"
#include "tests/ddp/models.h"
#include "tests/ddp/ranks.h"

namespace lockstep::test {
namespace {

using ddp::DistributedDataParallel;
using ddp::Options;

TEST(DelayedAllReduce, ReducesTheNamedParametersWithTheHookedOne) {
  for (const bool all : {false, true}) {
    torch::Tensor delayed, plain;
    const auto train = [&](bool delay) {
      torch::Tensor result;
      run_ranks(2, [&](Rank& rank) {
        Mlp module;
        fill_parameters(*module, 8);
        Options options;
        options.process_group(rank.group);
        if (delay) {
          ddp::NamedParameters named;
          for (const auto& parameter : module->named_parameters()) {
            if (all || parameter.key().substr(0, 3) != "fc1") named.emplace_back(parameter.key(), parameter.value());
          }
          // The first layer's bias has its gradient last of all but the first layer's weight.
          options.delay_all_reduce_named_params(named).param_to_hook_all_reduce(all ? module->fc1->weight
                                                                                    : module->fc1->bias);
        }
        auto net = DistributedDataParallel(module, options);
        torch::optim::SGD optimizer(net->parameters(), 0.05);
        for (int step = 0; step < 4; ++step) {
          optimizer.zero_grad();
          {
            auto scope = net.no_sync();
            net(input_of(rank, step)).sum().backward();
          }
          net(input_of(rank, step + 10)).square().sum().backward();
          optimizer.step();
        }
        expect_equal_on_ranks(rank, flat(*net));
        if (rank.rank == 0) result = flat(*net);
      });
      return result;
    };
    delayed = train(true);
    plain = train(false);
    EXPECT_LT(max_difference(delayed, plain), 1e-6);
  }
}

TEST(DelayedAllReduce, ReducesGradientsThatWereClearedAfterForward) {
  for (const bool to_none : {true, false}) {
    run_ranks(2, [&](Rank& rank) {
      Mlp module;
      fill_parameters(*module, 8);
      const ddp::NamedParameters delayed{{"fc3.weight", module->fc3->weight}, {"fc3.bias", module->fc3->bias}};
      auto net = DistributedDataParallel(module, Options()
                                                     .process_group(rank.group)
                                                     .delay_all_reduce_named_params(delayed)
                                                     .param_to_hook_all_reduce(module->fc1->weight));
      torch::optim::SGD optimizer(net.parameters(), 0.05);
      for (int step = 0; step < 3; ++step) {
        Mlp alone;
        fill_parameters(*alone, 8);
        for (int each = 0; each < 2; ++each)
          (alone(random_tensor({4, 8}, 100 * step + each)).square().mean() / 2).backward();
        const auto loss = net(input_of(rank, step)).square().mean();
        optimizer.zero_grad(to_none);
        loss.backward();
        EXPECT_LT(max_difference(flat_gradients(*module), flat_gradients(*alone)), 1e-6) << "step " << step;
      }
    });
  }
}

TEST(DelayedAllReduce, GoesOnAfterLoadingAndWithAnotherGroup) {
  run_ranks(3, [](Rank& rank) {
    Mlp module;
    fill_parameters(*module, 8);
    ddp::NamedParameters all;
    for (const auto& parameter : module->named_parameters()) all.emplace_back(parameter.key(), parameter.value());
    auto net = DistributedDataParallel(module, Options()
                                                   .process_group(rank.group)
                                                   .delay_all_reduce_named_params(all)
                                                   .param_to_hook_all_reduce(module->fc1->weight));
    net(input_of(rank)).sum().backward();
    std::stringstream archive;
    torch::save(net, archive);
    torch::load(net, archive);
    for (int step = 0; step < 2; ++step) {
      net.zero_grad();
      net(input_of(rank, step)).sum().backward();
      expect_reduced(rank, *net);
    }
    if (rank.rank == 2) return;
    Rank in_pair{rank.rank, 2, make_group(rank.store, rank.rank, 2, "pair"), rank.store};
    net.update_process_group(in_pair.group);
    net.zero_grad();
    net(input_of(rank)).sum().backward();
    expect_reduced(in_pair, *net);
  });
}

}  // namespace
}  // namespace lockstep::test
