// Each option of DistributedDataParallel, and what else its surface promises.
#include <sstream>

#include "ddp/distributed_data_parallel.h"
#include "ddp/simple.h"
#include "tests/ddp/models.h"
#include "tests/ddp/ranks.h"

namespace lockstep::test {

// An output that is a struct, with the function that names its tensors.
struct Prediction {
  torch::Tensor logits;
  std::optional<torch::Tensor> hidden;
  int count = 0;
};
inline auto tensors_of(Prediction& prediction) { return std::tie(prediction.logits, prediction.hidden); }

namespace {

using ddp::Bucket;
using ddp::DistributedDataParallel;
using ddp::Options;

torch::Tensor input_of(const Rank& rank, int step = 0) { return random_tensor({4, 8}, 100 * step + rank.rank); }

TEST(Wrapping, TakesHoldersPointersAndModules) {
  run_ranks(1, [](Rank& rank) {
    const auto options = Options().process_group(rank.group);
    auto holder = DistributedDataParallel(Mlp(), options);
    static_assert(std::is_same_v<decltype(holder), DistributedDataParallel<MlpImpl>>);
    auto pointer = DistributedDataParallel(std::make_shared<MlpImpl>(), options);
    static_assert(std::is_same_v<decltype(pointer), DistributedDataParallel<MlpImpl>>);
    auto value = DistributedDataParallel(MlpImpl(), options);
    static_assert(std::is_same_v<decltype(value), DistributedDataParallel<MlpImpl>>);
    auto sequential =
        DistributedDataParallel(torch::nn::Sequential(torch::nn::Linear(8, 4), torch::nn::Tanh()), options);
    auto any = DistributedDataParallel(torch::nn::AnyModule(torch::nn::Linear(8, 4)), options);
    const auto x = input_of(rank);
    EXPECT_EQ(holder(x).size(1), 4);
    EXPECT_EQ(pointer.forward(x).size(1), 4);
    EXPECT_EQ(value(x).size(1), 4);
    EXPECT_EQ(sequential(x).size(1), 4);
    EXPECT_EQ(sequential.forward_as<torch::Tensor>(x).size(1), 4);
    EXPECT_EQ(any(x).size(1), 4);
    EXPECT_EQ(holder->fc1->options.in_features(), 8);
    EXPECT_EQ(holder.named_parameters().keys()[0], "fc1.weight");
    auto copy = holder;  // a handle
    EXPECT_EQ(copy.module(), holder.module());
    std::ostringstream text;
    text << holder;
    EXPECT_NE(text.str().find("DistributedDataParallel("), std::string::npos);
  });
}

TEST(Wrapping, AWrapperThatWasMovedFromIsStillOne) {
  run_ranks(2, [](Rank& rank) {
    const auto options = Options().process_group(rank.group);
    auto net = DistributedDataParallel(Mlp(), options);
    auto any = DistributedDataParallel(torch::nn::AnyModule(torch::nn::Linear(8, 4)), options);
    const auto moved = std::move(net);
    const auto moved_any = std::move(any);
    net(input_of(rank)).sum().backward();  // NOLINT: that is the point
    any(input_of(rank)).sum().backward();  // NOLINT
    EXPECT_EQ(net.ptr(), moved.ptr());
    expect_reduced(rank, *moved);
    expect_reduced(rank, *moved_any.module());
  });
}

// forward with several arguments, and every kind of output. `which` names the one part that is used.
struct ManyOutputsImpl : torch::nn::Module {
  ManyOutputsImpl()
      : a(register_module("a", torch::nn::Linear(8, 4))), b(register_module("b", torch::nn::Linear(8, 4))) {}
  std::tuple<torch::Tensor, int, std::vector<torch::Tensor>> forward(const torch::Tensor& x, int number,
                                                                     std::vector<torch::Tensor>& seen) {
    seen.push_back(x);
    return {a(x), number, {b(x)}};
  }
  torch::nn::Linear a, b;
};
struct MapOutputImpl : ManyOutputsImpl {
  std::map<std::string, torch::Tensor> forward(const torch::Tensor& x) { return {{"a", a(x)}, {"b", b(x)}}; }
};
struct StructOutputImpl : ManyOutputsImpl {
  Prediction forward(const torch::Tensor& x) { return {a(x), b(x), 3}; }
};
struct VariantOutputImpl : ManyOutputsImpl {
  std::variant<int, std::pair<torch::Tensor, std::array<torch::Tensor, 1>>> forward(const torch::Tensor& x) {
    return std::pair{a(x), std::array{b(x)}};
  }
};

TEST(Forward, FindsTensorsInEveryKindOfOutput) {
  // With find_unused_parameters an output that the search did not see makes its parameters count as unused, and that they then get
  // gradients all the same is an error in the Reducer.
  run_ranks(2, [](Rank& rank) {
    const auto options = Options().process_group(rank.group).find_unused_parameters(true);
    const auto x = input_of(rank);
    const auto finish = [&](auto& net, const torch::Tensor& loss) {
      loss.backward();
      net.check_reducer_finalized();
      expect_equal_on_ranks(rank, flat_gradients(*net));
      EXPECT_GT(flat_gradients(*net).abs().sum().template item<double>(), 0);
    };
    auto tuple = DistributedDataParallel(ManyOutputsImpl(), options);
    std::vector<torch::Tensor> seen;
    auto [a, number, rest] = tuple(x, 5, seen);
    EXPECT_EQ(number, 5);
    EXPECT_EQ(seen.size(), 1) << "arguments are the caller's own where nothing has to be moved";
    finish(tuple, (a + rest[0]).sum());
    auto map = DistributedDataParallel(MapOutputImpl(), options);
    auto named = map(x);
    finish(map, (named["a"] + named["b"]).sum());
    auto record = DistributedDataParallel(StructOutputImpl(), options);
    auto prediction = record(x);
    EXPECT_EQ(prediction.count, 3);
    finish(record, (prediction.logits + *prediction.hidden).sum());
    auto variant = DistributedDataParallel(VariantOutputImpl(), options);
    auto pair = std::get<1>(variant(x));
    finish(variant, (pair.first + pair.second[0]).sum());
    // One output of two is left out of the loss: its parameters are unused, and nobody waits.
    auto half = DistributedDataParallel(MapOutputImpl(), options);
    half(x)["a"].sum().backward();
    half.check_reducer_finalized();
    half(x)["b"].sum().backward();
    half.check_reducer_finalized();
  });
}

TEST(Buckets, FollowTheCapsBeforeAndAfterTheFirstStep) {
  run_ranks(2, [](Rank& rank) {
    const auto step = [&](auto& net) { net(input_of(rank)).sum().backward(); };
    auto whole = DistributedDataParallel(Mlp(), Options().process_group(rank.group));
    EXPECT_EQ(whole.buckets().size(), 1);
    // fc1 64+8… in bytes: fc1.weight 16·8·4 = 512, fc1.bias 64, fc2.weight 1024, fc2.bias 64, fc3.weight 256, fc3.bias 16.
    auto small = DistributedDataParallel(Mlp(), Options().process_group(rank.group).bucket_cap_mb(300.0 / (1 << 20)));
    EXPECT_EQ(small.buckets().size(), 1) << "one bucket before the order of gradients is known";
    step(small);
    step(small);
    const auto buckets = small.buckets();
    ASSERT_GT(buckets.size(), 2);
    EXPECT_EQ(buckets[0].parameters.front(), "fc3.bias") << "the last layer's gradients come first";
    int64_t bytes = 0;
    for (const Bucket& bucket : buckets) bytes += bucket.bytes;
    EXPECT_EQ(bytes, 512 + 64 + 1024 + 64 + 256 + 16);
    auto listed = DistributedDataParallel(
        Mlp(), Options().process_group(rank.group).bucket_cap_mb_list({100.0 / (1 << 20), 1.0}));
    EXPECT_EQ(listed.buckets().size(), 2);
    step(listed);
    step(listed);
    EXPECT_EQ(listed.buckets().size(), 2);
    EXPECT_LE(listed.buckets()[0].bytes, 16 + 256);
    const auto data = small.logging_data();
    EXPECT_EQ(data.ints_map.at("world_size"), 2);
    EXPECT_EQ(data.strs_map.at("module_name"), small.module()->name());
  });
}

TEST(BucketViews, ShareTheBucketsMemoryAndWorkWithEveryZeroGrad) {
  run_ranks(2, [](Rank& rank) {
    for (const bool to_none : {true, false}) {
      auto net = DistributedDataParallel(Mlp(), Options().process_group(rank.group).gradient_as_bucket_view(true));
      torch::optim::SGD optimizer(net->parameters(), 0.1);
      for (int step = 0; step < 4; ++step) {
        net(input_of(rank, step)).sum().backward();
        expect_equal_on_ranks(rank, flat_gradients(*net));
        const auto buckets = net.reducer()->get_grad_buckets(false);
        EXPECT_TRUE(net->fc3->bias.grad().is_alias_of(buckets[0].getBuffer()));
        optimizer.step();
        switch (step) {
          case 0:
            net.zero_grad(to_none);
            break;
          case 1:
            optimizer.zero_grad(to_none);
            break;  // throws in LibTorch for gradients that are views
          case 2:
            net->zero_grad(to_none);
            break;
        }
        if (step < 3 && !to_none) {
          EXPECT_EQ(flat_gradients(*net).abs().sum().item<double>(), 0);
        }
        if (step < 3 && to_none) {
          EXPECT_FALSE(net->fc1->weight.grad().defined());
        }
      }
    }
  });
}

TEST(BucketViews, AreClearedByTheOptimizerAtAnyTime) {
  run_ranks(2, [](Rank& rank) {
    const auto options = Options().process_group(rank.group).gradient_as_bucket_view(true).bucket_cap_mb(3e-4);
    for (const bool to_none : {true, false}) {
      // Before the first forward: the module had gradients when it was wrapped.
      Mlp trained;
      fill_parameters(*trained, 1);
      trained(input_of(rank)).sum().backward();
      auto net = DistributedDataParallel(trained, options);
      torch::optim::SGD optimizer(net.parameters(), 0.1);
      optimizer.zero_grad(to_none);
      for (int step = 0; step < 3; ++step) {
        // Between forward and backward: the second forward lays out the buckets anew.
        const auto loss = net(input_of(rank, step)).sum();
        optimizer.zero_grad(to_none);
        EXPECT_EQ(flat_gradients(*net).abs().sum().item<double>(), 0);
        loss.backward();
        expect_reduced(rank, *net);
        EXPECT_TRUE(net->fc3->bias.grad().is_alias_of(net.reducer()->get_grad_buckets(false)[0].getBuffer()));
      }
      // After a backward that failed, and after the reset.
      const auto loss = net(input_of(rank)).sum();
      const auto hook =
          net->fc1->weight.register_hook([](const torch::Tensor&) { throw std::runtime_error("in backward"); });
      EXPECT_THROW(loss.backward(), std::runtime_error);
      net->fc1->weight.remove_hook(hook);
      optimizer.zero_grad(to_none);
      net.reset();
      optimizer.zero_grad(to_none);
      net(input_of(rank)).sum().backward();
      expect_reduced(rank, *net);
      // And in another wrapper of the module.
      auto again = DistributedDataParallel(trained, options);
      optimizer.zero_grad(to_none);
      again(input_of(rank)).sum().backward();
      expect_reduced(rank, *again);
    }
  });
}

// The loop of the DCGAN example, with an optimizer for each of the two.
TEST(BucketViews, TrainTwoModulesAgainstEachOther) {
  const auto train = [](const Options& given) {
    torch::Tensor last;
    run_ranks(2, [&](Rank& rank) {
      auto options = given;
      options.process_group(rank.group);
      Mlp generator(8), judge(12);
      fill_parameters(*generator, 1);
      fill_parameters(*judge, 2);
      auto net_g = DistributedDataParallel(torch::nn::Sequential(generator, torch::nn::Linear(4, 8)), options);
      fill_parameters(*net_g, 1);
      auto net_d = DistributedDataParallel(judge, options);
      torch::optim::SGD optimizer_g(net_g.parameters(), 0.05), optimizer_d(net_d.parameters(), 0.05);
      for (int step = 0; step < 4; ++step) {
        const auto fake = net_g(input_of(rank, step));
        optimizer_d.zero_grad();
        net_d(input_of(rank, step + 50)).square().mean().backward();
        net_d(fake.detach()).add(1).square().mean().backward();
        optimizer_d.step();
        optimizer_g.zero_grad();
        net_d(fake).square().mean().backward();
        expect_reduced(rank, *net_g);
        optimizer_g.step();
      }
      expect_equal_on_ranks(rank, torch::cat({flat(*net_g), flat(*net_d)}));
      if (rank.rank == 0) last = torch::cat({flat(*net_g), flat(*net_d)});
    });
    return last;
  };
  const auto plain = train(Options());
  EXPECT_LT(max_difference(train(Options().gradient_as_bucket_view(true)), plain), 1e-6);
}

TEST(InitSync, MakesReplicasEqualOrLeavesThem) {
  run_ranks(3, [](Rank& rank) {
    const auto make = [&](const Options& options) {
      ConvNet module;
      fill_parameters(*module, 50 + rank.rank);
      module->norm1->running_mean.fill_(rank.rank);
      auto chosen = options;
      return DistributedDataParallel(module, chosen.process_group(rank.group));
    };
    const auto first = [&](const auto& net) { return net->conv1->weight.detach().clone(); };
    auto equal = make(Options());
    expect_equal_on_ranks(rank, first(equal));
    EXPECT_EQ(equal->norm1->running_mean[0].template item<float>(), 0);
    auto without_buffers = make(Options().broadcast_buffers(false));
    EXPECT_EQ(without_buffers->norm1->running_mean[0].template item<float>(), rank.rank);
    auto apart = make(Options().init_sync(false));
    EXPECT_FALSE(gather(rank, first(apart))[0].equal(gather(rank, first(apart))[2]));
    apart.sync_module_states(2);
    expect_equal_on_ranks(rank, first(apart));
    EXPECT_EQ(apart->norm1->running_mean[0].template item<float>(), 2);
    auto ignoring = make(Options().ignored_parameters({"conv1.weight", "norm1.running_mean"}));
    EXPECT_FALSE(gather(rank, first(ignoring))[0].equal(gather(rank, first(ignoring))[1]));
    EXPECT_EQ(ignoring->norm1->running_mean[0].template item<float>(), rank.rank);
  });
}

TEST(Buffers, AreRankZerosBeforeForwardOrWhatAHookMakesOfThem) {
  run_ranks(2, [](Rank& rank) {
    const auto mean = [](const auto& net) { return net->norm1->running_mean.clone(); };
    auto net = DistributedDataParallel(ConvNet(), Options().process_group(rank.group));
    net(input_of(rank)).sum().backward();
    EXPECT_FALSE(gather(rank, mean(net))[0].equal(gather(rank, mean(net))[1])) << "each has seen its own batch";
    net.eval();
    net(input_of(rank)).sum().backward();
    expect_equal_on_ranks(rank, mean(net));

    auto own = DistributedDataParallel(ConvNet(), Options().process_group(rank.group).broadcast_buffers(false));
    for (int step = 0; step < 2; ++step) own(input_of(rank, step)).sum().backward();
    EXPECT_FALSE(gather(rank, mean(own))[0].equal(gather(rank, mean(own))[1]));

    auto hooked = DistributedDataParallel(ConvNet(), Options().process_group(rank.group));
    hooked.register_buffer_comm_hook([&](const auto& buffers) {
      std::vector<ddp::GradFuture> futures;
      for (const auto& [name, buffer] : buffers) {
        if (!buffer.is_floating_point()) continue;
        std::vector<torch::Tensor> tensors{buffer};
        c10d::AllreduceOptions options;
        options.reduceOp = c10d::ReduceOp::SUM;
        futures.push_back(rank.group->allreduce(tensors, options)->getFuture());
      }
      return futures;
    });
    hooked(input_of(rank)).sum().backward();
    expect_equal_on_ranks(rank, mean(hooked));
  });
}

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

TEST(Saving, GoesBetweenTheWrapperAndTheBareModule) {
  run_ranks(2, [](Rank& rank) {
    ConvNet module;
    fill_parameters(*module, 8);
    auto net = DistributedDataParallel(module, Options().process_group(rank.group));
    net(input_of(rank)).sum().backward();
    std::stringstream archive;
    torch::save(net, archive);
    ConvNet bare;
    torch::load(bare, archive);
    EXPECT_TRUE(flat(*bare).equal(flat(*net)));
    std::stringstream from_bare;
    fill_parameters(*bare, 99);
    torch::save(bare, from_bare);
    torch::load(net, from_bare);
    EXPECT_TRUE(flat(*bare).equal(flat(*net)));
    net(input_of(rank)).sum().backward();
    expect_equal_on_ranks(rank, flat_gradients(*net));
  });
}

TEST(Reset, MakesAWrapperUsableAfterAStepThatFailed) {
  run_ranks(2, [](Rank& rank) {
    for (const bool views : {false, true}) {
      auto net = DistributedDataParallel(Mlp(), Options().process_group(rank.group).gradient_as_bucket_view(views));
      for (int step = 0; step < 3; ++step) {
        net(input_of(rank)).sum().backward();
        // A backward that dies half way, on every rank.
        auto output = net(input_of(rank));
        auto hook =
            net->fc1->weight.register_hook([](const torch::Tensor&) { throw std::runtime_error("in backward"); });
        EXPECT_THROW(output.sum().backward(), std::runtime_error);
        net->fc1->weight.remove_hook(hook);
        EXPECT_THROW(net(input_of(rank)), std::runtime_error);
        net.reset();
        net.zero_grad();
        net(input_of(rank)).sum().backward();
        expect_equal_on_ranks(rank, flat_gradients(*net));
      }
    }
  });
}

TEST(Groups, CanBeExchanged) {
  run_ranks(3, [](Rank& rank) {
    auto net = DistributedDataParallel(Mlp(), Options().process_group(rank.group));
    net(input_of(rank)).sum().backward();
    if (rank.rank == 2) return;
    auto pair = make_group(rank.store, rank.rank, 2, "pair");
    net.update_process_group(pair);
    net.zero_grad();
    net(input_of(rank)).sum().backward();
    Rank in_pair{rank.rank, 2, pair, rank.store};
    expect_equal_on_ranks(in_pair, flat_gradients(*net));
    auto alone = make_group(rank.store, 0, 1, "alone" + std::to_string(rank.rank));
    net.update_process_group(alone);
    net.zero_grad();
    net(input_of(rank)).sum().backward();
    EXPECT_EQ(net.reducer(), nullptr);
  });
}

TEST(OneRank, ReducesNothingUntilAHookWantsTo) {
  run_ranks(1, [](Rank& rank) {
    auto net = DistributedDataParallel(Mlp(), Options().process_group(rank.group));
    EXPECT_EQ(net.reducer(), nullptr);
    net(input_of(rank)).sum().backward();
    EXPECT_EQ(net.buckets().size(), 1);
    EXPECT_EQ(net.logging_data().ints_map.at("world_size"), 1);
    EXPECT_EQ(net.reducer(), nullptr);
    int calls = 0;
    net.register_comm_hook([&](ddp::GradBucket& bucket) {
      ++calls;
      auto future = c10::make_intrusive<c10::ivalue::Future>(c10::TensorType::get());
      future->markCompleted(bucket.getBuffer());
      return future;
    });
    net(input_of(rank)).sum().backward();
    EXPECT_EQ(calls, 1);
  });
}

}  // namespace
}  // namespace lockstep::test
