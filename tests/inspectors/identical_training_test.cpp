// No inspector changes training. Each model is trained alone, and again with each inspector at work, and with all of
// them together: losses, gradients, parameters, buffers, the optimizer's state and the random numbers must be the same
// after every step, bit by bit.
//
// Ranks are processes, since threads would share the generator, and what one draws would depend on when the other does.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/ddp.h"
#include "lockstep/inspect.h"
#include "tests/ddp/models.h"
#include "tests/support/spawn_ranks.h"

namespace lockstep::inspect {
namespace {

constexpr int kRanks = 2;
constexpr int kSteps = 6;
constexpr int64_t kBatch = 6;

/// A model under training on this rank, without its type.
struct Training {
  int rank;
  ddp::DistributedModule net;
  std::function<torch::Tensor(const torch::Tensor&)> forward;
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  std::function<void(int step)> prepare = [](int) {};
  torch::Tensor loss = {};

  /// Everything random is drawn from the rank's own generator: batches and dropout.
  void step(int number, const std::function<void()>& after_backward = [] {}) {
    prepare(number);
    optimizer->zero_grad();
    if (number % 2 == 1) {  // every other step adds up over two batches
      const auto scope = net.no_sync();
      loss_of_a_batch().backward();
    }
    loss = loss_of_a_batch();
    loss.backward();
    loss = loss.detach();
    after_backward();
    inspect::step(*optimizer);
  }

 private:
  torch::Tensor loss_of_a_batch() const {
    return torch::nn::functional::cross_entropy(forward(torch::randn({kBatch, 8})), torch::randint(4, {kBatch}));
  }
};

/// Small buckets, so that there are several.
ddp::Options small_buckets() { return ddp::Options().bucket_cap_mb(0.0005); }

template <typename M>
Training training_of(int rank, const std::shared_ptr<M>& module, const ddp::Options& options) {
  auto net = ddp::DistributedDataParallel(module, options);
  return {.rank = rank, .net = net, .forward = [net](const torch::Tensor& x) mutable { return net(x); }};
}

// The models of the tests of ddp, each with an optimizer of another kind.
struct MlpOfViews {
  static Training make(int rank) {
    auto training = training_of(rank, std::make_shared<test::MlpImpl>(), small_buckets().gradient_as_bucket_view(true));
    training.optimizer = std::make_unique<torch::optim::AdamW>(training.net.parameters(),
                                                               torch::optim::AdamWOptions(1e-2).amsgrad(true));
    return training;
  }
};
struct ConvNetWithBatchNorm {
  static Training make(int rank) {
    auto training = training_of(rank, std::make_shared<test::ConvNetImpl>(), small_buckets());
    training.optimizer = std::make_unique<torch::optim::SGD>(
        training.net.parameters(), torch::optim::SGDOptions(0.05).momentum(0.9).weight_decay(1e-3));
    return training;
  }
};
struct EncoderWithDropout {
  static Training make(int rank) {
    auto training = training_of(rank, std::make_shared<test::EncoderImpl>(0.3), small_buckets());
    training.optimizer =
        std::make_unique<torch::optim::Adam>(training.net.parameters(), torch::optim::AdamOptions(1e-2));
    return training;
  }
};
struct BagWithSparseGradients {
  static Training make(int rank) {
    auto training = training_of(rank, std::make_shared<test::BagImpl>(), small_buckets());
    training.optimizer =
        std::make_unique<torch::optim::Adagrad>(training.net.parameters(), torch::optim::AdagradOptions(0.05));
    return training;
  }
};
struct TiedWeights {
  static Training make(int rank) {
    auto training = training_of(rank, std::make_shared<test::TiedImpl>(), small_buckets());
    training.optimizer = std::make_unique<torch::optim::RMSprop>(training.net.parameters(),
                                                                 torch::optim::RMSpropOptions(1e-3).momentum(0.5));
    return training;
  }
};
struct PartlyUsedParameters {
  static Training make(int rank) {
    const auto module = std::make_shared<test::PartlyUsedImpl>();
    auto training = training_of(rank, module, small_buckets().find_unused_parameters(true));
    training.optimizer =
        std::make_unique<torch::optim::Adam>(training.net.parameters(), torch::optim::AdamOptions(1e-2));
    training.prepare = [module](int step) { module->skip = step % 3 != 2; };
    return training;
  }
};

// ---------------------------------------------------------------- what training left behind

struct Value {
  std::string name;
  std::string bytes;
};
using Moment = std::vector<Value>;

std::string bytes_of(const torch::Tensor& tensor) {
  if (!tensor.defined()) return "none";
  if (tensor.is_sparse()) return "sparse" + bytes_of(tensor._indices()) + bytes_of(tensor._values());
  const torch::Tensor whole = tensor.detach().contiguous();
  return std::string(static_cast<const char*>(whole.const_data_ptr()), whole.nbytes());
}

Moment moment_of(const Training& training) {
  Moment moment = {{"loss", bytes_of(training.loss)}, {"wrapper's steps", std::to_string(training.net.steps())}};
  for (const auto& parameter : training.net.named_parameters()) {
    moment.push_back({"parameter " + parameter.key(), bytes_of(parameter.value())});
    moment.push_back({"gradient of " + parameter.key(), bytes_of(parameter.value().grad())});
  }
  for (const auto& buffer : training.net.named_buffers())
    moment.push_back({"buffer " + buffer.key(), bytes_of(buffer.value())});
  for (const Item& item : subject_of(*training.optimizer, "").items)
    moment.push_back({"optimizer " + item.name, item.tensor.defined() ? bytes_of(item.tensor) : item.value});
  moment.push_back({"random numbers", bytes_of(at::detail::getDefaultCPUGenerator().get_state())});
  return moment;
}

/// Where two trainings part first; empty where they do not.
std::string first_difference(const std::vector<Moment>& alone, const std::vector<Moment>& watched) {
  for (size_t step = 0; step < alone.size(); ++step) {
    if (alone[step].size() != watched[step].size()) return "the number of values after step " + std::to_string(step);
    for (size_t i = 0; i < alone[step].size(); ++i)
      if (alone[step][i].name != watched[step][i].name || alone[step][i].bytes != watched[step][i].bytes)
        return alone[step][i].name + " after step " + std::to_string(step);
  }
  return "";
}

// ---------------------------------------------------------------- inspectors at work

/// One inspector beside a training: what it holds meanwhile, and what it does in each step.
struct Look {
  std::string name;
  std::function<std::shared_ptr<void>(Training&)> begin = {};
  std::function<void(Training&, int number, const std::function<void()>& step)> around = {};
  std::function<void(Training&)> after_backward = {}, after_step = {};
  std::function<void(Training&)> late = {};  // what takes long, once: behind the last step but one
};

template <typename T>
std::shared_ptr<void> held(T value) {
  return std::make_shared<T>(std::move(value));
}

void expect_ok(const Report& report) { EXPECT_TRUE(report.ok()) << report; }

std::string results_folder() {
  const char* folder = std::getenv("LOCKSTEP_TEST_FOLDER");  // of the processes of one call
  return folder ? folder : "";
}

std::vector<Look> looks() {
  std::vector<Look> all;
  all.push_back({.name = "verify by all methods", .after_step = [](Training& training) {
                   for (const Method method :
                        {Method::kFingerprint, Method::kBroadcast, Method::kAllGather, Method::kAllReduce}) {
                     expect_ok(verify(training.net, VerifyOptions().method(method)));
                     expect_ok(verify(*training.optimizer, VerifyOptions().method(method)));
                   }
                   // Each rank draws numbers of its own.
                   EXPECT_EQ(verify(rng()).findings.at(0).verdict, Verdict::diverged_seed);
                   fingerprint(training.net.parameters());
                 }});
  all.push_back({.name = "watch, each step", .begin = [](Training& training) {
                   return held(std::pair(watch(training.net, 1), watch(*training.optimizer, 1)));
                 }});
  all.push_back({.name = "watch by all_gather", .begin = [](Training& training) {
                   return held(watch(training.net, 1, VerifyOptions().method(Method::kAllGather)));
                 }});
  all.push_back({.name = "watch by all_reduce", .begin = [](Training& training) {
                   return held(watch(training.net, 1, VerifyOptions().method(Method::kAllReduce)));
                 }});
  all.push_back({.name = "grads",
                 .after_backward =
                     [](Training& training) {
                       expect_ok(grads(training.net));
                       expect_ok(grads(*training.optimizer));
                     },
                 .after_step = [](Training& training) { grads(training.net, GradsOptions().local(true)); }});
  all.push_back({.name = "watch_grads",
                 .begin = [](Training& training) { return held(watch_grads(training.net)); },
                 .after_backward =
                     [](Training& training) {
                       expect_ok(grads(training.net));
                       expect_ok(grads(training.net, GradsOptions().local(true)));
                     }});
  all.push_back({.name = "nan_watch", .begin = [](Training& training) { return held(nan_watch(training.net)); }});
  all.push_back({.name = "the trace for NaN", .around = [](Training& training, int, const std::function<void()>& step) {
                   begin_nan_trace();
                   step();
                   expect_ok(end_nan_trace(NameList().add("net", training.net)));
                 }});
  all.push_back({.name = "replay", .around = [](Training& training, int number, const std::function<void()>& step) {
                   expect_ok(replay([&] { training.step(number); }, training.net, *training.optimizer));
                   step();
                 }});
  all.push_back({.name = "lockstep_ranks", .around = [](Training& training, int, const std::function<void()>& step) {
                   expect_ok(lockstep_ranks(step, training.net));
                 }});
  all.push_back(
      {.name = "lockstep, twice", .around = [](Training& training, int number, const std::function<void()>& step) {
         expect_ok(lockstep([&] { training.step(number); }, training.net, *training.optimizer));
         step();
       }});
  all.push_back({.name = "time_sync", .around = [](Training& training, int number, const std::function<void()>& step) {
                   // Before the first step, where the wrapper has no buckets yet; and in the middle.
                   if (number % 4 == 0) {
                     auto timed = [&] { training.step(number); };
                     time_sync(TimeSyncOptions().steps(2).warm_up(2), timed, training.net, *training.optimizer);
                   }
                   step();
                 }});
  all.push_back({.name = "buckets", .after_step = [](Training& training) { expect_ok(buckets(training.net)); }});
  all.push_back({.name = "memory",
                 .begin = [](Training&) { return held(watch_memory()); },
                 .after_step =
                     [](Training& training) {
                       expect_ok(
                           memory({named_memory("net", training.net), named_memory("optimizer", *training.optimizer)}));
                     }});
  all.push_back({.name = "timeline",
                 .begin = [](Training&) { return held(record_operators()); },
                 .late =
                     [](Training&) {
                       const TimelineReport report = timeline(results_folder() + "/timeline.json");
                       EXPECT_GT(report.operators, 0);
                     }});
  // Its order is drawn when it is made, and again whenever it is read.
  all.push_back(
      {.name = "data", .after_step = [sampler = torch::data::samplers::RandomSampler(20)](Training& training) {
         EXPECT_FALSE(data(sampler).ok()) << "both ranks read everything";
         expect_ok(data(torch::data::samplers::DistributedRandomSampler(20, kRanks, training.rank)));
       }});
  all.push_back({.name = "ranks", .late = [](Training&) { expect_ok(ranks()); }});
  all.push_back({.name = "hang", .after_step = [](Training&) {
                   for (const Finding& finding : hang({results_folder() + "/log-0", results_folder() + "/log-1"}))
                     EXPECT_EQ(finding.severity, Severity::note) << finding.message;
                 }});
  return all;
}

/// All inspectors in one training. Those that trace a step take turns: a thread has one trace at a time.
std::vector<Moment> train_watched(const std::function<Training(int)>& make, int rank,
                                  const std::vector<const Look*>& looks) {
  torch::manual_seed(100 + rank);
  Training training = make(rank);
  std::vector<std::shared_ptr<void>> held;
  std::vector<const Look*> around;
  for (const Look* look : looks) {
    if (look->begin) held.push_back(look->begin(training));
    if (look->around) around.push_back(look);
  }
  std::vector<Moment> moments;
  for (int number = 0; number < kSteps; ++number) {
    const auto step = [&] {
      training.step(number, [&] {
        for (const Look* look : looks)
          if (look->after_backward) look->after_backward(training);
      });
    };
    if (around.empty())
      step();
    else
      around[static_cast<size_t>(number) % around.size()]->around(training, number, step);
    for (const Look* look : looks)
      if (look->after_step) look->after_step(training);
    if (number == kSteps - 2)
      for (const Look* look : looks)
        if (look->late) look->late(training);
    moments.push_back(moment_of(training));
  }
  return moments;
}

testing::RankOptions with_logs() {
  testing::RankOptions options;
  options.log_folder = results_folder();
  return options;
}

template <typename M>
class IdenticalTraining : public ::testing::Test {};
using Models = ::testing::Types<MlpOfViews, ConvNetWithBatchNorm, EncoderWithDropout, BagWithSparseGradients,
                                TiedWeights, PartlyUsedParameters>;
struct Names {
  template <typename M>
  static std::string GetName(int) {
    const std::string name = c10::demangle(typeid(M).name());
    return name.substr(name.rfind(':') + 1);
  }
};
TYPED_TEST_SUITE(IdenticalTraining, Models, Names);

TYPED_TEST(IdenticalTraining, WithEachInspectorAndWithAll) {
  testing::spawn_processes(
      kRanks,
      [](int rank, int) {
        torch::set_num_threads(1);
        const auto alone = train_watched(TypeParam::make, rank, {});
        ASSERT_EQ(first_difference(alone, train_watched(TypeParam::make, rank, {})), "")
            << "training alone does not repeat";
        const std::vector<Look> all = looks();
        std::vector<const Look*> together;
        for (const Look& look : all) {
          EXPECT_EQ(first_difference(alone, train_watched(TypeParam::make, rank, {&look})), "")
              << "with " << look.name << ", on rank " << rank;
          together.push_back(&look);
        }
        EXPECT_EQ(first_difference(alone, train_watched(TypeParam::make, rank, together)), "")
            << "with all inspectors, on rank " << rank;
      },
      with_logs());
}

TEST(IdenticalTrainingItself, SeesARandomNumberAndABitOfAGradient) {
  testing::spawn_processes(kRanks, [](int rank, int) {
    torch::set_num_threads(1);
    const auto make = EncoderWithDropout::make;
    const auto alone = train_watched(make, rank, {});
    const Look draws = {.name = "", .after_step = [](Training&) { torch::rand({1}); }};
    EXPECT_EQ(first_difference(alone, train_watched(make, rank, {&draws})), "random numbers after step 0");
    const Look writes = {.name = "", .after_backward = [](Training& training) {
                           const torch::NoGradGuard no_grad;
                           training.net.parameters()[0].mutable_grad().mul_(1 + 1e-6);
                         }};
    EXPECT_NE(first_difference(alone, train_watched(make, rank, {&writes})), "");
  });
}

}  // namespace
}  // namespace lockstep::inspect
