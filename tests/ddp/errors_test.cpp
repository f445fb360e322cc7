// What goes wrong is said with names and ranks, on every rank that it concerns, and nobody waits for ever.
#include <gmock/gmock.h>

#include "ddp/distributed_data_parallel.h"
#include "ddp/hooks/comm_hooks.h"
#include "ddp/parameter_check.h"
#include "tests/ddp/models.h"
#include "tests/ddp/ranks.h"

namespace lockstep::test {
namespace {

using ddp::DistributedDataParallel;
using ddp::Options;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

torch::Tensor input() { return torch::ones({2, 8}); }

TEST(Errors, ParametersThatDifferAreNamedOnEveryRank) {
  EXPECT_THAT(errors_of_ranks(3,
                              [](Rank& rank) {
                                auto net = DistributedDataParallel(Mlp(rank.rank == 1 ? 12 : 16),
                                                                   Options().process_group(rank.group));
                              }),
              Each(AllOf(HasSubstr("rank 1 (6 tensors; ranks 0,2: 6)"),
                         HasSubstr("fc1.weight is [12, 8] Float, and [16, 8] Float on ranks 0,2"))));
  EXPECT_THAT(errors_of_ranks(2,
                              [](Rank& rank) {
                                Mlp module;
                                if (rank.rank == 1) module->fc3->bias.set_data(module->fc3->bias.to(torch::kDouble));
                                auto net = DistributedDataParallel(module, Options().process_group(rank.group));
                              }),
              Each(HasSubstr("fc3.bias is [4] Double, and [4] Float on rank 0")));
  EXPECT_THAT(errors_of_ranks(2,
                              [](Rank& rank) {
                                auto options = Options().process_group(rank.group);
                                if (rank.rank == 0) {
                                  auto net = DistributedDataParallel(Mlp(), options);
                                } else {
                                  auto net = DistributedDataParallel(PartlyUsed(), options);
                                }
                              }),
              Each(HasSubstr("is missing")));
}

TEST(Errors, ARankThatCannotWrapStopsAll) {
  const auto errors = errors_of_ranks(2, [](Rank& rank) {
    Mlp module;
    if (rank.rank == 1) {
      for (auto& parameter : module->parameters()) parameter.requires_grad_(false);
    }
    auto net = DistributedDataParallel(module, Options().process_group(rank.group));
  });
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("rank 1: no parameter"), HasSubstr("requires a gradient"))));
}

TEST(Errors, OptionsThatDoNotFit) {
  const auto error_of = [](const std::function<Options(Mlp&)>& options) {
    return errors_of_ranks(1, [&](Rank& rank) {
      Mlp module;
      auto chosen = options(module);
      auto net = DistributedDataParallel(module, chosen.process_group(rank.group));
    })[0];
  };
  EXPECT_THAT(error_of([](Mlp&) { return Options().device_ids({torch::kCPU, torch::kCPU}); }), HasSubstr("one device"));
  EXPECT_THAT(error_of([](Mlp&) { return Options().device_ids({torch::kCPU}); }), HasSubstr("single GPU"));
  EXPECT_THAT(error_of([](Mlp&) { return Options().output_device(torch::kCPU); }), HasSubstr("single GPU"));
  EXPECT_THAT(error_of([](Mlp&) { return Options().ignored_parameters({"fc9.weight"}); }),
              AllOf(HasSubstr("no parameter or buffer 'fc9.weight'"), HasSubstr("fc1.weight")));
  EXPECT_THAT(error_of([](Mlp& m) { return Options().param_to_hook_all_reduce(m->fc1->weight); }),
              HasSubstr("set together"));
  EXPECT_THAT(error_of([](Mlp&) { return Options().bucket_cap_mb(0.0); }), HasSubstr("greater than 0"));
  EXPECT_THAT(
      error_of([](Mlp&) {
        return Options().find_unused_parameters(true).mixed_precision(ddp::MixedPrecision().param_dtype(torch::kHalf));
      }),
      HasSubstr("static_graph"));
  EXPECT_THAT(errors_of_ranks(1,
                              [](Rank& rank) {
                                auto module = std::make_shared<MlpImpl>();
                                module->register_parameter("late", torch::empty({2}, torch::kMeta));
                                auto net = DistributedDataParallel(module, Options().process_group(rank.group));
                              })[0],
              AllOf(HasSubstr("meta"), HasSubstr("late")));
  EXPECT_THAT(errors_of_ranks(1, [](Rank&) { auto net = DistributedDataParallel(Mlp()); })[0],
              HasSubstr("no default process group"));
  EXPECT_THAT(
      errors_of_ranks(
          2,
          [](Rank& rank) {
            auto net = DistributedDataParallel(
                Bag(),
                Options().process_group(rank.group).mixed_precision(ddp::MixedPrecision().param_dtype(torch::kHalf)));
          }),
      Each(AllOf(HasSubstr("bag.weight has sparse ones"), HasSubstr("sparse(false)"))));
  EXPECT_THAT(error_of([](Mlp& m) {
                m->register_parameter("phase", torch::zeros({2}, torch::kComplexFloat));
                return Options().mixed_precision(ddp::MixedPrecision().param_dtype(torch::kHalf));
              }),
              HasSubstr("phase is of type ComplexFloat"));
#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 12
  EXPECT_THAT(errors_of_ranks(2,
                              [](Rank& rank) {
                                auto net = DistributedDataParallel(
                                    Mlp(), Options().process_group(rank.group).batched_grad_copy(true));
                              }),
              Each(HasSubstr("needs LibTorch 2.12")));
#endif
}

TEST(Errors, UnusedParametersAreNamedAtTheNextForward) {
  const auto errors = errors_of_ranks(2, [](Rank& rank) {
    auto net = DistributedDataParallel(PartlyUsed(), Options().process_group(rank.group));
    net->skip = false;
    for (int step = 0; step < 3; ++step) net(input()).sum().backward();
    net->skip = true;
    net(input()).sum().backward();
    EXPECT_THROW(net.check_reducer_finalized(), ddp::Error);
    net(input());
  });
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_THAT(errors[rank],
                AllOf(HasSubstr("on rank " + std::to_string(rank) + " gave no gradient to 2 of 6 parameters"),
                      HasSubstr("skipped.weight, skipped.bias"), Not(HasSubstr("used.weight, used")),
                      HasSubstr("find_unused_parameters(true)")));
  }
}

TEST(Errors, BackwardWithoutForwardOfTheWrapper) {
  run_ranks(2, [](Rank& rank) {
    auto net = DistributedDataParallel(Mlp(), Options().process_group(rank.group));
    const auto message = [](const std::function<void()>& backward) -> std::string {
      try {
        backward();
      } catch (const std::exception& error) {
        return error.what();
      }
      return "";
    };
    EXPECT_THAT(message([&] { net->forward(input()).sum().backward(); }),
                AllOf(HasSubstr("on rank " + std::to_string(rank.rank)), HasSubstr("no forward of the wrapper")));
    net.zero_grad();
    net(input()).sum().backward();
    const auto loss = net(input()).sum();
    loss.backward({}, /*retain_graph=*/true);
    EXPECT_THAT(message([&] { loss.backward(); }), HasSubstr("second time"));
    net.zero_grad();
    {
      auto scope = net.no_sync();
      const auto local = net(input()).sum();
      local.backward({}, true);
      local.backward();
    }
    net.zero_grad();
    net(input()).sum().backward();  // and all is well again
  });
}

TEST(Errors, AParameterThatIsReadyTwiceIsNamed) {
  EXPECT_THAT(errors_of_ranks(
                  1,
                  [](Rank& rank) {
                    auto net = DistributedDataParallel(CheckpointedImpl(), Options().process_group(rank.group));
                    net.register_builtin_comm_hook(c10d::BuiltinCommHookType::ALLREDUCE);  // so that one rank reduces
                    for (int step = 0; step < 2; ++step) net(input()).sum().backward();
                  })[0],
              AllOf(HasSubstr("ready only once"), HasSubstr("name weight")));
  // A static graph counts its gradients.
  run_ranks(2, [](Rank& rank) {
    auto net = DistributedDataParallel(CheckpointedImpl(), Options().process_group(rank.group).static_graph(true));
    CheckpointedImpl alone;
    fill_parameters(*net, 5);
    fill_parameters(alone, 5);
    for (int each = 1; each <= 2; ++each) (alone.forward(input() * each).sum() / 2).backward();
    for (int step = 0; step < 3; ++step) {
      net.zero_grad();
      net(input() * (rank.rank + 1)).sum().backward();
      EXPECT_LT(max_difference(flat_gradients(*net), flat_gradients(alone)), 1e-5);
    }
  });
}

TEST(Errors, ARankThatThrowsInForwardOrDiesInBackwardFreesTheOthers) {
  for (const bool in_backward : {false, true}) {
    const auto errors = errors_of_ranks(3, [&](Rank& rank) {
      auto net = DistributedDataParallel(Mlp(), Options().process_group(rank.group));
      for (int step = 0; step < 3; ++step) {
        if (rank.rank == 1 && step == 2 && !in_backward) throw std::runtime_error("no data");
        auto output = net(input());
        if (rank.rank == 1 && step == 2) {
          net->fc2->weight.register_hook([](const torch::Tensor&) { throw std::runtime_error("bad gradient"); });
        }
        output.sum().backward();
      }
    });
    EXPECT_THAT(errors[1], HasSubstr(in_backward ? "bad gradient" : "no data"));
    EXPECT_NE(errors[0], "");
    EXPECT_NE(errors[2], "");
  }
}

TEST(Errors, AReductionThatFailedIsNotTakenForMissingGradients) {
  run_ranks(2, [](Rank& rank) {
    auto net = DistributedDataParallel(Mlp(), Options().process_group(rank.group));
    bool connected = true;
    const ddp::CommHook reduce = ddp::allreduce_hook(rank.group);
    net.register_comm_hook(ddp::CommHook("mine", [&](ddp::GradBucket& bucket) -> ddp::GradFuture {
      if (!connected) throw std::runtime_error("no connection");
      return reduce.run(bucket);
    }));
    net(input()).sum().backward();
    connected = false;
    EXPECT_THAT(message_of([&] { net(input()).sum().backward(); }), HasSubstr("no connection"));
    EXPECT_THAT(message_of([&] { net(input()); }), HasSubstr("although every parameter gave its gradient"));
    connected = true;
    net.reset();
    net.zero_grad();
    net(input()).sum().backward();
    expect_reduced(rank, *net);
  });
}

TEST(Errors, EndWithTheAdviceThatFitsTheDifference) {
  const auto errors_of = [](const std::function<void(Mlp&, Options&)>& change) {
    return errors_of_ranks(3, [&](Rank& rank) {
      Mlp module;
      auto options = Options().process_group(rank.group);
      if (rank.rank == 1) change(module, options);
      auto net = DistributedDataParallel(module, options);
    });
  };
  EXPECT_THAT(errors_of([](Mlp& m, Options&) { m->fc3->bias.set_data(m->fc3->bias.to(torch::kDouble)); }),
              Each(AllOf(HasSubstr("fc3.bias is [4] Double, and [4] Float on ranks 0,2"), HasSubstr("module->to("),
                         Not(HasSubstr("same sizes")))));
  EXPECT_THAT(errors_of([](Mlp& m, Options&) { m->fc1->weight.requires_grad_(false); }),
              Each(AllOf(HasSubstr("fc1.weight is [16, 8] Float (no gradient), and [16, 8] Float on ranks 0,2"),
                         HasSubstr("Freeze the same parameters"), Not(HasSubstr("same sizes")))));
  EXPECT_THAT(errors_of([](Mlp& m, Options&) { m->fc2->weight.set_data(m->fc2->weight.t()); }),
              Each(AllOf(HasSubstr("fc2.weight is [16, 16] Float with strides [1, 16], and [16, 16] Float on"),
                         HasSubstr("same memory layout"), Not(HasSubstr("same sizes")))));
  EXPECT_THAT(errors_of([](Mlp&, Options& options) { options.find_unused_parameters(true).bucket_cap_mb(2); }),
              Each(AllOf(HasSubstr("rank 1 (6 tensors; ranks 0,2: 6): the option find_unused_parameters is true, and "
                                   "false on ranks 0,2; the option bucket_cap_mb is 2, and none on ranks 0,2"),
                         HasSubstr("same options on every rank"), Not(HasSubstr("same sizes")))));
  EXPECT_THAT(errors_of([](Mlp&, Options& options) {
                options.mixed_precision(ddp::MixedPrecision().param_dtype(torch::kHalf));
              }),
              Each(HasSubstr("the option mixed_precision is param_dtype Half, reduce_dtype none, buffer_dtype none, "
                             "and none on ranks 0,2")));
}

TEST(Errors, AWeightThatIsTiedOnOneRankIsNamed) {
  struct Pair : torch::nn::Module {
    explicit Pair(bool tied) : in(register_module("in", torch::nn::Linear(8, 8))) {
      out = register_parameter("out", tied ? in->weight : torch::ones({8, 8}));
    }
    torch::Tensor forward(const torch::Tensor& x) { return in(x).mm(out); }
    torch::nn::Linear in;
    torch::Tensor out;
  };
  const auto errors = errors_of_ranks(3, [](Rank& rank) {
    auto net = DistributedDataParallel(std::make_shared<Pair>(rank.rank == 2), Options().process_group(rank.group));
  });
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("rank 2 (3 tensors; ranks 0-1: 3): in.weight is the same tensor as out, "
                                           "and a tensor of its own on ranks 0-1"),
                                 HasSubstr("Share the same tensors on every rank"), Not(HasSubstr("same sizes")))));
}

TEST(Errors, SparseGradientsOnOneRankAreNamed) {
  EXPECT_THAT(errors_of_ranks(2,
                              [](Rank& rank) {
                                auto net =
                                    DistributedDataParallel(Bag(rank.rank == 1), Options().process_group(rank.group));
                              }),
              Each(AllOf(HasSubstr("bag.weight is [32, 6] Float (sparse gradient), and [32, 6] Float on rank 0"),
                         HasSubstr("option sparse"))));
}

TEST(Difference, NamesTheMinorityAndWhatItHas) {
  using Tensors = std::vector<ddp::detail::TensorDescription>;
  const auto difference = [](const std::vector<Tensors>& ranks) {
    std::vector<ddp::detail::ReplicaDescription> replicas;
    for (const auto& tensors : ranks) replicas.push_back({tensors});
    return ddp::detail::difference(replicas);
  };
  const Tensors right{{"a", "[2]", "Float"}, {"b", "[3]", "Float"}};
  EXPECT_EQ(difference({right, right}), "");
  EXPECT_THAT(difference({right, {{"a", "[2]", "Float"}}, right}),
              AllOf(HasSubstr("rank 1 (1 tensors; ranks 0,2: 2)"), HasSubstr("b [3] Float is missing"),
                    HasSubstr("same sizes on every rank")));
  EXPECT_THAT(difference({right, {{"b", "[3]", "Float"}, {"a", "[2]", "Float"}}}),
              AllOf(HasSubstr("the order differs: number 0 is b, and a on rank 0"), HasSubstr("in the same order")));
  EXPECT_THAT(difference({right, {{"a", "[2]", "Float"}, {"b", "[3]", "Float"}, {"c", "[1]", "Float"}}}),
              HasSubstr("c [1] Float does not exist on rank 0"));
}

}  // namespace
}  // namespace lockstep::test
