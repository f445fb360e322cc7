// What can be wrapped, called, saved and loaded, and how the wrapper finds the tensors in the outputs.
#include <sstream>

#include "ddp/distributed_data_parallel.h"
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

using ddp::DistributedDataParallel;
using ddp::Options;

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
  // With find_unused_parameters an output that the search did not see makes its parameters count as unused, and that
  // they then get gradients all the same is an error in the Reducer.
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

TEST(OneRank, ReducesNothingUntilAHookWantsTo) {
  run_ranks(1, [](Rank& rank) {
    auto net = DistributedDataParallel(Mlp(), Options().process_group(rank.group));
    EXPECT_EQ(net.reducer(), nullptr);
    net(input_of(rank)).sum().backward();
    EXPECT_EQ(net.buckets().size(), 1);
    EXPECT_EQ(net.logging_data().ints_map.at("world_size"), 1);
    EXPECT_EQ(net.reducer(), nullptr);
    const auto loss = net(input_of(rank)).sum();
    EXPECT_EQ(net.buckets().size(), 1);
    loss.backward();  // the question between forward and backward has changed nothing
    net->forward(input_of(rank)).sum().backward();
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
