// Runs that are recorded in C++, and what the comparison says of them.
#include "inspectors/recorder/recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdlib>
#include <functional>
#include <mutex>

#include "inspectors/compare/folders.h"
#include "inspectors/recorder/rounding_noise.h"
#include "lockstep/ddp.h"
#include "protocol/dist_error.h"
#include "tests/inspectors/compare_runs.h"
#include "tests/support/spawn_ranks.h"

namespace lockstep::inspect {
namespace {

using compare::CompareFolder;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::spawn_ranks;

struct NetImpl : torch::nn::Module {
  NetImpl() {
    fc1 = register_module("fc1", torch::nn::Linear(8, 16));
    fc2 = register_module("fc2", torch::nn::Linear(16, 4));
  }
  torch::Tensor forward(torch::Tensor x) { return fc2(torch::relu(fc1(x))); }
  torch::nn::Linear fc1{nullptr}, fc2{nullptr};
};
TORCH_MODULE(Net);

constexpr int64_t kBatch = 8;

/// How a training differs from the reference.
struct Case {
  int ranks = 1;
  int64_t micro_batches = 1;
  bool averages = true;  // gradients over ranks
  bool divides = true;  // losses by the number of micro-batches
  std::function<void(int rank, NetImpl& net)> at_start = nullptr;
  std::function<void(int rank, torch::Tensor& x)> batch = nullptr;
  double lr = 0.1;
};

/// Ranks are threads, which share the generator.
std::mutex of_generator;

template <typename Make>
auto seeded(int64_t seed, const Make& make) {
  const std::lock_guard lock(of_generator);
  torch::manual_seed(static_cast<uint64_t>(seed));
  return make();
}

void train(CompareRecorder& recorder, const Case& given, int rank) {
  const auto net = seeded(1, [] { return std::make_shared<NetImpl>(); });
  if (given.at_start) given.at_start(rank, *net);
  torch::optim::SGD optimizer(net->parameters(), given.lr);
  recorder.model(*net);
  const int64_t size = kBatch / given.ranks / given.micro_batches;
  for (int step = 0; !recorder.is_over(); ++step) {
    const auto [all, targets] =
        seeded(100 + step, [] { return std::pair(torch::randn({kBatch, 8}), torch::randn({kBatch, 4})); });
    optimizer.zero_grad();
    for (int64_t m = 0; m < given.micro_batches; ++m) {
      const int64_t first = (rank * given.micro_batches + m) * size;
      torch::Tensor x = all.slice(0, first, first + size).clone();
      if (given.batch) given.batch(rank, x);
      const torch::Tensor y = targets.slice(0, first, first + size);
      recorder.samples({x, y});
      const torch::Tensor out = recorder.output("fc2", net->forward(x));
      const double parts = given.divides ? static_cast<double>(given.micro_batches) : 1;
      recorder.loss(torch::mse_loss(out, y) / parts).backward();
    }
    if (given.ranks > 1 && given.averages)
      for (const torch::Tensor& each : net->parameters()) {
        torch::Tensor gradient = each.grad();
        dist::all_reduce(gradient);
        gradient.div_(given.ranks);
      }
    recorder.step(optimizer);
  }
}

/// Records the reference and the candidate, and compares them.
compare::Comparison compared(const Case& given, const CompareOptions& options = {}) {
  const CompareFolder folder;
  record_reference(folder.path, [](CompareRecorder& recorder) { train(recorder, {}, 0); });
  spawn_ranks(given.ranks, [&](int rank, int) {
    record_candidate(folder.path, [&](CompareRecorder& recorder) { train(recorder, given, rank); }, options);
  });
  compare::RunFolders folders = compare::reference_in(folder.path);
  EXPECT_EQ(folders.perturbed.size(), 4u);
  compare::set_candidate(folders, folder.path);
  return compare::judge_folders(folders, {});
}

std::string fault_of(const Case& given) {
  const compare::Comparison result = compared(given);
  EXPECT_FALSE(result.is_same);
  return result.findings.empty() ? "" : result.findings.front().message;
}

TEST(CompareRecorder, TheSameTrainingInOtherLayouts) {
  for (const Case& given : {Case{}, Case{.ranks = 2}, Case{.micro_batches = 2}, Case{.ranks = 2, .micro_batches = 2}}) {
    const compare::Comparison result = compared(given);
    EXPECT_TRUE(result.is_same) << result.findings.front().message;
    EXPECT_EQ(result.steps, 2);
    // Each rank: 4 parameters at the start; in 2 steps an output, a loss, a gradient of the output, 4 gradients and 4
    // parameters. Losses count once.
    EXPECT_GT(result.compared, 20u);
    EXPECT_LT(result.largest, 1);
  }
}

TEST(CompareRecorder, NamesTheFirstValueThatDiffers) {
  EXPECT_THAT(fault_of({.ranks = 2, .averages = false}),
              HasSubstr("step 0: the gradient of fc1.weight on ranks 0-1 is not the reference's"));
  EXPECT_THAT(fault_of({.micro_batches = 2, .divides = false}),
              AllOf(HasSubstr("step 0: the loss"), HasSubstr("2 × the reference's")));
  EXPECT_THAT(fault_of({.lr = 0.2}), HasSubstr("step 0: the value after the step of fc1.weight"));
  EXPECT_THAT(fault_of({.ranks = 2,
                        .at_start =
                            [](int rank, NetImpl& net) {
                              const torch::NoGradGuard no_grad;
                              if (rank == 1) net.fc2->bias.add_(1e-3);
                            }}),
              AllOf(HasSubstr("fc2.bias"), HasSubstr("rank 1")));
  EXPECT_THAT(fault_of({.ranks = 2,
                        .batch =
                            [](int rank, torch::Tensor& x) {
                              if (rank == 1) x[0][0] = 9;
                            }}),
              HasSubstr("step 0: the samples differ: 1 of the 4 samples of rank 1 are not in the reference's batch"));
}

TEST(CompareRecorder, FindsAllFaultsWhereValuesAreReplaced) {
  const CompareOptions all = CompareOptions().all_faults(true);
  const Case three{.ranks = 2,
                   .averages = false,
                   .at_start =
                       [](int rank, NetImpl& net) {
                         const torch::NoGradGuard no_grad;
                         if (rank == 1) net.fc2->bias.add_(1e-3);
                       },
                   .lr = 0.2};
  const compare::Comparison result = compared(three, all);
  EXPECT_TRUE(result.is_replaced);
  EXPECT_EQ(result.not_replaced, std::vector<std::string>());
  std::vector<std::string> faults;
  for (const Finding& each : result.findings)
    if (each.severity == Severity::fault) faults.push_back(each.message);
  EXPECT_THAT(
      faults,
      ElementsAre(HasSubstr("step 0: the initial value of fc2.bias on rank 1"),
                  AllOf(HasSubstr("step 0: the gradient of fc1.weight on ranks 0-1"), HasSubstr("not averaged over"),
                        HasSubstr("; likewise the gradient of fc1.bias, the gradient of fc2.weight and 1 more")),
                  AllOf(HasSubstr("step 0: the value after the step of fc1.weight"), HasSubstr("; likewise "))));
  // A candidate that is the same is not run twice.
  EXPECT_FALSE(compared({.ranks = 2}, all).is_replaced);
}

TEST(CompareRecorder, RefusesToReplaceValuesOfOtherSamples) {
  const CompareFolder folder;
  record_reference(folder.path, [](CompareRecorder& recorder) { train(recorder, {}, 0); });
  double first = 9;
  const auto other_each_time = [&](CompareRecorder& recorder) {
    train(recorder, {.batch = [&](int, torch::Tensor& x) { x[0][0] = first++; }}, 0);
  };
  EXPECT_THROW(record_candidate(folder.path, other_each_time, CompareOptions().all_faults(true)), Error);
}

// The other ranks hear of it, and do not wait.
TEST(CompareRecorder, AllRanksThrowWhereRankZeroCannotJudge) {
  const CompareFolder folder;
  spawn_ranks(2, [&](int rank, int) {
    EXPECT_THROW(record_candidate(
                     folder.path, [&](CompareRecorder& recorder) { train(recorder, {.ranks = 2}, rank); },
                     CompareOptions().all_faults(true)),
                 Error);
  });
}

// Tensor parallelism by hand: a rank has its part of the gate, its part of what is gated, and the columns that read both.
TEST(CompareRecorder, AWeightOfTwoProjectionsThatIsDivided) {
  struct Gated : torch::nn::Module {
    Gated(int rank, int ranks) {
      const auto [up, down] = seeded(1, [] { return std::pair(torch::randn({16, 8}), torch::randn({4, 8})); });
      const std::vector<torch::Tensor> blocks = up.chunk(2);
      gate_up = register_parameter("gate_up", torch::cat({blocks[0].chunk(ranks)[static_cast<size_t>(rank)],
                                                          blocks[1].chunk(ranks)[static_cast<size_t>(rank)]}));
      this->down = register_parameter("down", down.chunk(ranks, 1)[static_cast<size_t>(rank)].clone());
    }
    torch::Tensor gate_up, down;
  };
  const CompareFolder folder;
  const auto run = [](CompareRecorder& recorder, int rank, int ranks, bool reduces) {
    auto net = std::make_shared<Gated>(rank, ranks);
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    recorder.model(net);
    while (!recorder.is_over()) {
      const torch::Tensor x = seeded(2, [] { return torch::randn({kBatch, 8}); });
      optimizer.zero_grad();
      recorder.samples({x});
      const torch::Tensor hidden = recorder.output("gate_up", torch::matmul(x, net->gate_up.t()));
      const std::vector<torch::Tensor> parts = hidden.chunk(2, 1);
      torch::Tensor out = torch::matmul(torch::silu(parts[0]) * parts[1], net->down.t());
      if (ranks > 1 && reduces) {
        torch::Tensor sum = out.detach().clone();
        dist::all_reduce(sum);
        out = out + (sum - out.detach());
      }
      recorder.loss(recorder.output("down", out).square().mean()).backward();
      recorder.step(optimizer);
    }
  };
  record_reference(folder.path, [&](CompareRecorder& recorder) { run(recorder, 0, 1, true); });
  for (const bool reduces : {true, false}) {
    spawn_ranks(2, [&](int rank, int) {
      record_candidate(folder.path, [&](CompareRecorder& recorder) { run(recorder, rank, 2, reduces); });
    });
    compare::RunFolders folders = compare::reference_in(folder.path);
    compare::set_candidate(folders, folder.path);
    const compare::Comparison result = compare::judge_folders(folders, {});
    EXPECT_EQ(result.is_same, reduces) << result.findings.front().message;
    if (!reduces) EXPECT_THAT(result.findings.front().message, HasSubstr("step 0: the output of down on ranks 0-1"));
  }
}

TEST(CompareRecorder, TakesWrappersHoldersAndFunctionsThatUpdate) {
  const CompareFolder folder;
  spawn_ranks(2, [&](int rank, int) {
    record_candidate(folder.path, [&](CompareRecorder& recorder) {
      torch::manual_seed(1);
      Net holder;
      ddp::DistributedDataParallel net(holder);
      recorder.model(net);
      while (!recorder.is_over()) {
        const torch::Tensor x = torch::randn({4, 8});
        net.module()->zero_grad();
        recorder.samples({x});
        recorder.loss(recorder.output("fc2", net(x)).square().mean()).backward();
        recorder.step([&] {
          const torch::NoGradGuard no_grad;
          for (const torch::Tensor& each : net.parameters()) each.sub_(each.grad(), 0.1);
        });
      }
      EXPECT_TRUE(recorder.is_over());
      recorder.output("fc2", torch::ones({1}));  // records nothing
    });
    static_cast<void>(rank);
  });
  const compare::Run run = compare::read_run(compare::run_of_candidate(folder.path, 2).folder);
  ASSERT_EQ(run.ranks.size(), 2u);
  for (const compare::Recording& rank : run.ranks) {
    EXPECT_TRUE(rank.is_complete);
    EXPECT_EQ(rank.steps, 2);
    EXPECT_EQ(rank.pieces.size(), 4u + 2 * (3 + 4 + 4));
    EXPECT_EQ(rank.names.front().name, "fc1.weight");
  }
  Net holder;
  CompareRecorder recorder(compare::run_of_candidate(folder.path, 1), RecordedRank::alone);
  recorder.model(holder);
  recorder.model(holder.ptr());
}

// A training that goes on from the run before shows how far training goes, not how far rounding does.
TEST(CompareRecorder, ARunThatGoesOnFromTheLastIsRefused) {
  const CompareFolder folder;
  auto net = std::make_shared<NetImpl>();
  const auto go_on = [&](CompareRecorder& recorder) {
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    recorder.model(net);
    while (!recorder.is_over()) {
      recorder.samples({torch::ones({kBatch, 8})});
      optimizer.zero_grad();
      recorder.loss(net->forward(torch::ones({kBatch, 8})).square().mean()).backward();
      recorder.step(optimizer);
    }
  };
  record_reference(folder.path, go_on);
  record_candidate(folder.path, go_on);
  compare::RunFolders folders = compare::reference_in(folder.path);
  compare::set_candidate(folders, folder.path);
  EXPECT_THROW(compare::judge_folders(folders, {}), Error);
}

TEST(CompareRecorder, ARunThatBreaksOffIsNotTheSame) {
  const CompareFolder folder;
  record_reference(folder.path, [](CompareRecorder& recorder) { train(recorder, {}, 0); });
  EXPECT_THROW(record_candidate(folder.path,
                                [](CompareRecorder& recorder) {
                                  int steps = 0;
                                  train(recorder,
                                        {.batch =
                                             [&](int, torch::Tensor&) {
                                               if (steps++ == 1) throw std::runtime_error("in the middle");
                                             }},
                                        0);
                                }),
               std::runtime_error);
  compare::RunFolders folders = compare::reference_in(folder.path);
  compare::set_candidate(folders, folder.path);
  const compare::Comparison result = compare::judge_folders(folders, {});
  EXPECT_FALSE(result.is_same);
  EXPECT_THAT(result.findings.front().message, HasSubstr("that is not all"));
  EXPECT_THAT(result.findings.back().message, HasSubstr("broke off after 1 of 2 steps"));
}

TEST(CompareRecorder, TwoModelsWithTheSameNames) {
  const CompareFolder folder;
  const auto both = [](CompareRecorder& recorder) {
    const auto [actor, critic] =
        seeded(3, [] { return std::pair(std::make_shared<NetImpl>(), std::make_shared<NetImpl>()); });
    torch::optim::SGD first(actor->parameters(), 0.1), second(critic->parameters(), 0.1);
    recorder.model(actor);
    recorder.model(critic);
    while (!recorder.is_over()) {
      const torch::Tensor x = seeded(4, [] { return torch::randn({kBatch, 8}); });
      first.zero_grad();
      second.zero_grad();
      recorder.samples({x});
      const std::vector<torch::Tensor> halves = critic->forward(x).chunk(2, 1);
      recorder.output("used", halves[0]);
      recorder.output("unused", halves[1]);  // has no gradient
      recorder.loss((actor->forward(x).slice(1, 0, 2) - halves[0]).square().mean()).backward();
      recorder.step([&] {
        first.step();
        second.step();
      });
    }
  };
  record_reference(folder.path, both);
  record_candidate(folder.path, both);
  compare::RunFolders folders = compare::reference_in(folder.path);
  compare::set_candidate(folders, folder.path);
  const compare::Comparison result = compare::judge_folders(folders, {});
  EXPECT_TRUE(result.is_same) << result.findings.front().message;
  const compare::Recording rank = compare::read_recording(compare::path_of_recording(folders.candidate, 0));
  EXPECT_TRUE(std::ranges::any_of(rank.names, [](const auto& each) { return each.name == "model2.fc1.weight"; }));
}

TEST(CompareRecorder, TwoLossesOfOneOutput) {
  const CompareFolder folder;
  const auto train_part = [](CompareRecorder& recorder, int64_t part, int64_t parts, double second = 1) {
    const auto net = seeded(5, [] { return std::make_shared<NetImpl>(); });
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    recorder.model(net);
    while (!recorder.is_over()) {
      optimizer.zero_grad();
      const torch::Tensor x = seeded(6, [] { return torch::randn({kBatch, 8}); });
      for (int64_t m = 0; m < parts; ++m) {
        const torch::Tensor own = x.chunk(parts)[static_cast<size_t>(part + m)];
        recorder.samples({own});
        const torch::Tensor out = recorder.output("out", net->forward(own));
        const double share = static_cast<double>(parts);
        recorder.loss(out.square().mean() / share).backward({}, /*retain_graph=*/true);
        recorder.loss(out.exp().mean() / share).backward(torch::full({}, second));
      }
      recorder.step(optimizer);
    }
  };
  record_reference(folder.path, [&](CompareRecorder& recorder) { train_part(recorder, 0, 1); });
  compare::RunFolders folders = compare::reference_in(folder.path);
  record_candidate(folder.path, [&](CompareRecorder& recorder) { train_part(recorder, 0, 2); });
  compare::set_candidate(folders, folder.path);
  const compare::Comparison same = compare::judge_folders(folders, {});
  EXPECT_TRUE(same.is_same) << same.findings.front().message;
  record_candidate(folder.path, [&](CompareRecorder& recorder) { train_part(recorder, 0, 2, 2); });
  const compare::Comparison other = compare::judge_folders(folders, {});
  ASSERT_FALSE(other.is_same);
  EXPECT_THAT(other.findings.front().message, HasSubstr("the gradient of the output of out (backward 2)"));
}

// What the optimizer does not read is not compared, and the file says so.
TEST(CompareRecorder, ParametersOfNoOptimizerAndOfNoModel) {
  const CompareFolder folder;
  Net net, other;
  torch::optim::SGD optimizer(std::vector<torch::Tensor>{net->fc1->weight, net->fc1->bias, other->fc1->weight}, 0.1);
  CompareRecorder recorder({.folder = folder.path, .steps = 1}, RecordedRank::alone);
  recorder.model(net);
  recorder.samples({torch::ones({2, 8})});
  recorder.loss(net->fc1(torch::ones({2, 8})).sum()).backward();
  net->fc1->bias.mutable_grad() = torch::Tensor();
  recorder.step(optimizer);
  const compare::Recording rank = compare::read_recording(compare::path_of_recording(folder.path, 0));
  std::vector<std::string> gradients;
  for (const compare::Piece& each : rank.pieces)
    if (each.kind == compare::PieceKind::gradient)
      gradients.push_back(rank.names[each.name].name + (each.flags & compare::Piece::absent ? " absent" : ""));
  EXPECT_THAT(gradients, ::testing::ElementsAre("fc1.weight", "fc1.bias absent"));
  EXPECT_THAT(rank.notes, ::testing::ElementsAre(HasSubstr("parameters of no model that was recorded")));
}

TEST(CompareRecorder, RefusesWhatCannotBeCompared) {
  const CompareFolder folder;
  const compare::RecordedRun run{.folder = folder.in("run")};
  {
    CompareRecorder recorder(run);
    EXPECT_THROW(recorder.samples({torch::ones({2})}), dist::ArgumentError);  // of no model
    torch::nn::LSTM lstm(torch::nn::LSTMOptions(2, 2).num_layers(2).dropout(0.5));
    EXPECT_THROW(recorder.model(lstm), dist::ArgumentError);
    torch::nn::Sequential net(torch::nn::Linear(2, 2), torch::nn::Dropout(0.1));
    EXPECT_THROW(recorder.model(net), dist::ArgumentError);
    net->eval();
    recorder.model(net);
    EXPECT_THROW(recorder.loss(torch::ones({2})), dist::ArgumentError);
    EXPECT_THROW(recorder.step([] {}), dist::ArgumentError);  // without samples
    EXPECT_THROW(recorder.close(), Error);  // without a step
  }
  EXPECT_THROW(CompareRecorder({.folder = "/proc/none"}), Error);
  EXPECT_THROW(record_reference(folder.in("none"), [](CompareRecorder&) {}), Error);
}

TEST(CompareRecorder, ACommandSaysWhereAndWhat) {
  ASSERT_EQ(std::getenv("LOCKSTEP_COMPARE"), nullptr);
  CompareRecorder none;
  none.model(Net());
  none.samples({torch::ones({2, 8})});
  EXPECT_FALSE(none.is_over());

  const CompareFolder folder;
  compare::prepare_run({.folder = folder.in("run"), .steps = 1, .has_values = true});
  ::setenv("LOCKSTEP_COMPARE", folder.in("run").c_str(), 1);
  {
    CompareRecorder recorder;
    train(recorder, {}, 0);
  }
  EXPECT_THROW(CompareRecorder(), Error);
  ::unsetenv("LOCKSTEP_COMPARE");
  const compare::Recording rank = compare::read_recording(compare::path_of_recording(folder.in("run"), 0));
  EXPECT_TRUE(rank.about.has_values);
  EXPECT_EQ(rank.steps, 1);
}

// Perturbed are results of operators, in forward and backward; not parameters, inputs, integers, or what is off.
TEST(RoundingNoise, ChangesResultsByHalfAUnit) {
  torch::manual_seed(1);
  torch::nn::Linear net(8, 4);
  const torch::Tensor x = torch::randn({3, 8}), weight = net->weight.detach().clone(), x_before = x.clone();
  const torch::Tensor index = torch::arange(3);
  const auto pass = [&] {
    net->zero_grad();
    torch::Tensor out = torch::relu(net->forward(x)).view({-1});
    out.square().sum().backward();
    return std::pair(out.detach().clone(), net->weight.grad().clone());
  };
  const auto [out, gradient] = pass();
  RoundingNoise noise(1);
  noise.set_on(true);
  const auto [noisy, noisy_gradient] = pass();
  EXPECT_TRUE(torch::equal(torch::ones({64}), torch::full({64}, 1.f)));
  torch::Tensor slice = x.slice(0, 0, 2);
  slice.unsqueeze_(1);
  EXPECT_TRUE(torch::equal(index + 1, torch::arange(1, 4)));
  noise.set_on(false);
  EXPECT_TRUE(torch::equal(net->weight, weight));
  EXPECT_TRUE(torch::equal(x, x_before));
  for (const auto& [a, b] : {std::pair(out, noisy), std::pair(gradient, noisy_gradient)}) {
    EXPECT_FALSE(torch::equal(a, b));
    EXPECT_TRUE(torch::allclose(a, b, 1e-5, 1e-6));
  }
  const auto [again, again_gradient] = pass();
  EXPECT_TRUE(torch::equal(out, again));
  EXPECT_TRUE(torch::equal(gradient, again_gradient));
}

TEST(RoundingNoise, EndsWhenATrainingThrows) {
  const CompareFolder folder;
  const torch::Tensor x = torch::ones({64});
  EXPECT_THROW(record_reference(folder.path,
                                [&](CompareRecorder& recorder) {
                                  train(recorder, {}, 0);
                                  if (folder.path.empty()) return;
                                  Net net;
                                  CompareRecorder other({.folder = folder.in("other"), .noise = 1},
                                                        RecordedRank::alone);
                                  other.model(net);
                                  other.samples({x});
                                  throw std::runtime_error("in the middle");
                                }),
               std::runtime_error);
  EXPECT_TRUE(torch::equal(x * 3, torch::full({64}, 3.f)));
}

}  // namespace
}  // namespace lockstep::inspect
