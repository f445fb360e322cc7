// nan: which operator made the first bad value, and what is no finding.
#include "inspectors/nan/nan.h"

#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/CPUAllocator.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <cstring>
#include <limits>
#include <mutex>
#include <sstream>

#include "ddp/ddp.h"
#include "inspectors/exchange/shown.h"
#include "tests/support/spawn_ranks.h"

namespace lockstep::inspect {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::spawn_ranks;

constexpr double kInf = std::numeric_limits<double>::infinity();

/// Memory that is NaN until it is written, the worst that a freed block may hold.
class JunkAllocator : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    c10::DataPtr memory = inner_->allocate(bytes);
    if (bytes > 0) std::memset(memory.get(), 0xff, bytes);
    return memory;
  }
  c10::DeleterFnPtr raw_deleter() const override { return inner_->raw_deleter(); }
  void copy_data(void* to, const void* from, size_t bytes) const override { inner_->copy_data(to, from, bytes); }
  c10::Allocator* inner() const { return inner_; }

 private:
  c10::Allocator* inner_ = c10::GetCPUAllocator();
};

class Nan : public ::testing::Test {
 protected:
  Nan() { c10::SetCPUAllocator(&junk_); }
  ~Nan() override { c10::SetCPUAllocator(junk_.inner()); }

 private:
  JunkAllocator junk_;
};

struct Net : torch::nn::Module {
  Net() {
    first = register_module("first", torch::nn::Linear(4, 8));
    second = register_module("second", torch::nn::Linear(8, 3));
    torch::NoGradGuard guard;
    double next = 0.5;
    for (auto& parameter : parameters())
      parameter.copy_(torch::arange(parameter.numel()).reshape(parameter.sizes()).mul(0.01).sub(next /= 2));
  }
  torch::Tensor forward(const torch::Tensor& x) { return second(torch::relu(first(x))); }
  torch::nn::Linear first{nullptr}, second{nullptr};
};

torch::Tensor input() { return torch::arange(8.0).reshape({2, 4}).div(8); }

const Finding& only_finding(const Report& report) {
  EXPECT_EQ(report.findings.size(), 1U) << report;
  static const Finding none{.tensors = {FindingTensor{}}, .op = FindingOp{}};
  return report.findings.empty() ? none : report.findings[0];
}

TEST_F(Nan, a_good_step_is_ok) {
  auto net = std::make_shared<Net>();
  torch::optim::Adam optimizer(net->parameters(), 1e-2);
  const Report report = replay(
      [&] {
        optimizer.zero_grad();
        auto loss = net->forward(input()).square().mean();
        loss.backward();
        optimizer.step();
        return loss;
      },
      net, optimizer);
  EXPECT_EQ(only_finding(report).verdict, "ok") << report;
  EXPECT_GT(report.tensors, 20);
}

TEST_F(Nan, forward_names_operator_module_shapes_and_ranges) {
  auto net = std::make_shared<Net>();
  const Report report = replay([&] { return net->forward(input()).sub(1000).log().sum(); }, net);
  const Finding& finding = only_finding(report);
  EXPECT_EQ(finding.severity, Severity::fault);
  EXPECT_EQ(finding.inspector, "nan");
  EXPECT_EQ(finding.verdict, "nan");
  EXPECT_EQ(finding.kind, "forward");
  ASSERT_TRUE(finding.op);
  EXPECT_EQ(finding.op->name, "log");
  ASSERT_FALSE(finding.tensors.empty());
  EXPECT_THAT(finding.tensors[0].shape, ElementsAre(2, 3));
  EXPECT_EQ(finding.tensors[0].count, 6);
  EXPECT_THAT(finding.message, HasSubstr("after module second"));
  EXPECT_THAT(finding.message, HasSubstr("self float32 [2, 3] in [-1e+03, "));
}

TEST_F(Nan, an_operator_within_another_is_named_with_it) {
  const Report report = replay([] {
    auto logits = torch::full({2, 3}, 1.0).set_requires_grad(true);
    auto scaled = logits * 3e38 * 10;  // overflows
    return torch::nn::functional::cross_entropy(scaled, torch::tensor({0, 1}));
  });
  const Finding& finding = only_finding(report);
  EXPECT_EQ(finding.op->name, "mul");
  EXPECT_EQ(finding.verdict, "inf");
  EXPECT_THAT(finding.message, HasSubstr("log_softmax made NaN of it"));
}

TEST_F(Nan, backward_names_the_forward_operator) {
  auto x = torch::tensor({0.0, 1.0}).set_requires_grad(true);
  const Report report = replay([&] { (x.sqrt() * torch::tensor({0.0, 1.0})).sum().backward(); }, x);
  const Finding& finding = only_finding(report);
  EXPECT_EQ(finding.verdict, "nan") << report;
  EXPECT_EQ(finding.kind, "backward");
  EXPECT_THAT(finding.message, HasSubstr("in the backward of sqrt"));
  EXPECT_THAT(finding.message, HasSubstr("the gradient of"));
  EXPECT_FALSE(x.grad().defined());
}

TEST_F(Nan, masks_and_constants_are_no_findings) {
  const Report report = replay([] {
    auto scores = torch::arange(9.0).reshape({3, 3}).set_requires_grad(true);
    const auto mask = torch::ones({3, 3}).triu(1).to(torch::kBool);
    auto attended = torch::softmax(scores.masked_fill(mask, -kInf), -1);
    const auto additive = torch::zeros({3, 3}).masked_fill(mask, -kInf);
    auto again = torch::softmax(scores + additive, -1);
    const auto logarithm = torch::ones({3, 3}).tril().log();  // -Inf out of finite values, for the same purpose
    auto third = torch::softmax(scores + logarithm, -1);
    const auto lowest = torch::full({3}, -kInf);
    auto largest = torch::maximum(lowest, std::get<0>(scores.max(1)));
    auto loss = (attended * again * third).sum() + largest.sum();
    loss.backward();
    return loss;
  });
  EXPECT_EQ(only_finding(report).verdict, "ok") << report;
}

TEST_F(Nan, a_branch_that_where_leaves_out_is_no_finding) {
  const Report report = replay([] {
    const auto x = torch::tensor({-1.0, 0.0, 2.0});
    return torch::where(x > 0, x.log(), torch::zeros({3})).sum();
  });
  EXPECT_EQ(only_finding(report).verdict, "ok") << report;
  EXPECT_THAT(only_finding(report).message, HasSubstr("went nowhere"));
}

TEST_F(Nan, a_row_that_is_masked_whole_is_a_finding) {
  const Report report = replay([] {
    auto scores = torch::zeros({2, 3}).set_requires_grad(true);
    return torch::softmax(scores.masked_fill(torch::ones({2, 3}, torch::kBool), -kInf), -1).sum();
  });
  const Finding& finding = only_finding(report);
  EXPECT_EQ(finding.verdict, "nan");
  EXPECT_EQ(finding.op->name, "softmax");
}

TEST_F(Nan, what_came_in_bad_is_named) {
  auto net = std::make_shared<Net>();
  {
    torch::NoGradGuard guard;
    net->second->bias[1] = std::nan("");
  }
  const Report report = replay([&] { return net->forward(input()).sum(); }, net);
  const Finding& finding = only_finding(report);
  EXPECT_THAT(finding.message, HasSubstr("came in with parameter second.bias"));
  EXPECT_EQ(finding.tensors.at(0).name, "second.bias");
}

TEST_F(Nan, what_lay_in_memory_before_it_was_written_is_nobodys_fault) {
  auto net = std::make_shared<Net>();
  const auto data = input();
  const Report report = replay(
      [&] {
        const auto out = net->forward(data);
        auto sums = torch::empty({2}), copy = torch::empty({2}), filled = torch::empty({2});
        torch::sum_out(sums, out.detach(), 1);
        copy.copy_(sums).add_(filled.fill_(1));
        auto loss = torch::nn::functional::layer_norm(out, torch::nn::functional::LayerNormFuncOptions({3})).var() +
                    out.sum(0).mean() + std::get<0>(torch::median(out, 0)).sum() + torch::cat({copy, sums}).std() +
                    torch::cumsum(out, 0).norm();
        loss.backward();
        return loss;
      },
      net);
  EXPECT_EQ(only_finding(report).verdict, "ok") << report;
  EXPECT_THAT(only_finding(report).message, Not(HasSubstr("went nowhere")));
}

TEST_F(Nan, what_is_written_into_junk_is_its_writers) {
  const auto data = torch::full({2, 2}, -1.0);
  const auto logarithm = [&](const std::function<torch::Tensor(const torch::Tensor&)>& written) {
    return replay([&] { return written(data.log()).sum(); });
  };
  for (const Report& report : {
           logarithm([](const torch::Tensor& x) { return torch::empty({2, 2}).copy_(x); }),
           logarithm([](const torch::Tensor& x) {
             auto out = torch::empty({2, 2});
             torch::mul_out(out, x, x);
             return out;
           }),
       })
    EXPECT_EQ(only_finding(report).op->name, "log") << report;
  const Report direct = replay([&] {
    auto out = torch::empty({2, 2});
    torch::log_out(out, data);
    return out;
  });
  EXPECT_EQ(only_finding(direct).op->name, "log") << direct;
}

TEST_F(Nan, memory_that_is_read_unwritten_is_a_finding) {
  const Report report = replay([] { return torch::empty({2}) * 2; });
  EXPECT_THAT(only_finding(report).message, HasSubstr("memory that was never written was read: empty gave it"));
}

TEST_F(Nan, an_optimizer_that_overflows_is_named) {
  auto weight = torch::ones({3}).set_requires_grad(true);
  torch::optim::SGD optimizer({weight}, 1e38);
  const Report report = replay(
      [&] {
        (weight * 1e3).sum().backward();
        optimizer.step();
      },
      weight, optimizer);
  const Finding& finding = only_finding(report);
  EXPECT_EQ(finding.verdict, "inf");
  EXPECT_EQ(finding.kind, "optimizer");
  EXPECT_EQ(finding.op->name, "add_");
}

TEST_F(Nan, replay_puts_everything_back) {
  auto net = std::make_shared<Net>();
  torch::optim::Adam optimizer(net->parameters(), torch::optim::AdamOptions(1e-2).amsgrad(true));
  const auto train = [&] {
    optimizer.zero_grad();
    auto loss = torch::dropout(net->forward(input()), 0.5, true).square().mean();
    loss.backward();
    optimizer.step();
    return loss;
  };
  torch::manual_seed(3);
  for (int i = 0; i < 2; ++i) train();
  std::vector<torch::Tensor> values, gradients;
  for (auto& each : net->parameters()) {
    values.push_back(each.detach().clone());
    gradients.push_back(each.grad().clone());
  }
  const auto draw = [] { return at::detail::getDefaultCPUGenerator().get_state(); };
  const auto generator = draw();
  replay(
      [&] {
        net->eval();
        optimizer.param_groups()[0].options().set_lr(7);
        return train();
      },
      net, optimizer);
  EXPECT_TRUE(net->is_training());
  EXPECT_EQ(optimizer.param_groups()[0].options().get_lr(), 1e-2);
  EXPECT_TRUE(torch::equal(draw(), generator));
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_TRUE(torch::equal(net->parameters()[i], values[i]));
    EXPECT_TRUE(torch::equal(net->parameters()[i].grad(), gradients[i]));
  }
  // And training goes on as it would have.
  const auto next = train();
  auto other = std::make_shared<Net>();
  torch::optim::Adam fresh(other->parameters(), torch::optim::AdamOptions(1e-2).amsgrad(true));
  std::swap(net, other);
  torch::manual_seed(3);
  torch::Tensor expected;
  for (int i = 0; i < 3; ++i) {
    fresh.zero_grad();
    expected = torch::dropout(net->forward(input()), 0.5, true).square().mean();
    expected.backward();
    fresh.step();
  }
  EXPECT_TRUE(torch::equal(next, expected));
  for (size_t i = 0; i < values.size(); ++i) EXPECT_TRUE(torch::equal(net->parameters()[i], other->parameters()[i]));
}

TEST_F(Nan, what_is_shown_is_a_result) {
  const auto traced = [](const std::function<torch::Tensor()>& cell) {
    begin_nan_trace();
    {
      const torch::Tensor value = cell();
      note_shown(value);
      std::ostringstream written;
      written << value;
    }
    return end_nan_trace({});
  };
  const Report report = traced([] { return torch::log(torch::zeros({2})); });
  EXPECT_EQ(only_finding(report).verdict, "inf") << report;
  EXPECT_EQ(only_finding(report).op->name, "log");
  EXPECT_THAT(only_finding(report).message, HasSubstr("it reached a value that was shown"));
  EXPECT_EQ(only_finding(traced([] { return torch::log(torch::zeros({2}) - 1) * 2; })).verdict, "nan");
  // By design, or in the eyes of nobody.
  EXPECT_EQ(only_finding(traced([] { return torch::full({2}, -kInf) + 1; })).verdict, "ok");
  EXPECT_EQ(only_finding(traced([] { return torch::softmax(torch::ones({3, 3}).tril().log(), -1); })).verdict, "ok");
  // An Inf that was there before the cell: a mask, perhaps. A NaN was made by somebody.
  const auto mask = torch::full({2}, -kInf), data = torch::full({2}, std::nan(""));
  EXPECT_EQ(only_finding(traced([&] { return mask * 2; })).verdict, "ok");
  EXPECT_THAT(only_finding(traced([&] { return data * 2; })).message, HasSubstr("came in with"));
  note_shown(data);  // nothing is traced
}

TEST_F(Nan, an_exception_passes_and_the_state_is_back) {
  auto weight = torch::ones({3}).set_requires_grad(true);
  EXPECT_THROW(replay(
                   [&] {
                     torch::NoGradGuard guard;
                     weight.mul_(2);
                     throw std::runtime_error("no");
                   },
                   weight),
               std::runtime_error);
  EXPECT_TRUE(torch::equal(weight, torch::ones({3})));
}

TEST_F(Nan, the_rank_that_made_it_is_named_and_not_those_it_reached) {
  spawn_ranks(3, [](int rank, int) {
    auto net = ddp::DistributedDataParallel(std::make_shared<Net>());
    torch::optim::SGD optimizer(net.parameters(), 0.1);
    const Report report = replay(
        [&] {
          net.zero_grad();
          auto out = net(input());
          if (rank == 2) out = out * torch::tensor({0.0, 1.0, 1.0}).log().abs();  // 0 * Inf in backward, Inf in forward
          out.square().mean().backward();
          optimizer.step();
        },
        net, optimizer, NanOptions().deadline(std::chrono::minutes(5)));
    const Finding& finding = only_finding(report);
    EXPECT_EQ(finding.ranks, RankSet{2}) << report;
    EXPECT_EQ(finding.op->name, "log");
    EXPECT_EQ(finding.reference_ranks, (RankSet{0, 1}));
  });
}

TEST_F(Nan, a_rank_that_does_not_come_is_named) {
  spawn_ranks(2, [](int rank, int) {
    if (rank == 1) return;
    const Report report =
        replay([] { return torch::ones({2}); }, NanOptions().deadline(std::chrono::milliseconds(300)));
    EXPECT_EQ(only_finding(report).verdict, "missing");
    EXPECT_EQ(only_finding(report).ranks, RankSet{1});
  });
}

/// Findings that are published meanwhile.
class Published {
 public:
  Published() {
    set_finding_sink([this](const Finding& finding) { findings_.push_back(finding); });  // publish() holds a lock
  }
  ~Published() { set_finding_sink(nullptr); }
  const std::vector<Finding>& findings() const { return findings_; }

 private:
  std::vector<Finding> findings_;
};

TEST(NanWatch, names_rank_parameter_and_step_before_the_reduction) {
  const Published published;
  spawn_ranks(3, [](int rank, int) {
    auto net = ddp::DistributedDataParallel(std::make_shared<Net>());
    torch::optim::SGD optimizer(net.parameters(), 0.1);
    const auto watching = nan_watch(net);
    for (int step = 1; step <= 4; ++step) {
      net.zero_grad();
      auto out = net(input());
      if (rank == 1 && step == 3)
        out = out + (out.detach().sub(out) * 0).sqrt().mean();  // sqrt(0): backward alone is bad
      out.square().mean().backward();
      optimizer.step();
    }
    EXPECT_EQ(watching.status().steps, 4);
    EXPECT_EQ(watching.status().gradients, 16);
  });
  ASSERT_EQ(published.findings().size(), 1U);
  const Finding& finding = published.findings()[0];
  EXPECT_EQ(finding.verdict, "nan");
  EXPECT_EQ(finding.ranks, RankSet{1});
  EXPECT_EQ(finding.step, 3);
  EXPECT_EQ(finding.kind, "backward");
  EXPECT_EQ(finding.tensors.at(0).name, "second.bias");
}

// Of the watch's own there have been fewer: it began later.
TEST(NanWatch, counts_steps_as_the_wrapper_does) {
  const Published published;
  spawn_ranks(2, [](int rank, int) {
    auto net = ddp::DistributedDataParallel(std::make_shared<Net>());
    torch::optim::SGD optimizer(net.parameters(), 0.1);
    const auto train = [&](bool bad) {
      net.zero_grad();
      auto out = net(input());
      if (rank == 1 && bad) out = out + (out.detach().sub(out) * 0).sqrt().mean();
      out.square().mean().backward();
      optimizer.step();
    };
    for (int step = 1; step <= 4; ++step) train(false);
    const auto watching = nan_watch(net);
    train(false);
    train(true);
    EXPECT_EQ(net.steps(), 6);
  });
  ASSERT_EQ(published.findings().size(), 1U);
  EXPECT_EQ(published.findings()[0].kind, "backward");
  EXPECT_EQ(published.findings()[0].step, 6);
}

TEST(NanWatch, counts_the_step_of_a_loss_as_the_wrapper_does) {
  const Published published;
  spawn_ranks(2, [](int rank, int) {
    auto net = ddp::DistributedDataParallel(std::make_shared<Net>());
    for (int step = 1; step <= 2; ++step) net(input()).mean().backward();
    const auto watching = nan_watch(net);
    (net(input()).mean() * (rank == 1 ? NAN : 1)).backward();
  });
  ASSERT_EQ(published.findings().size(), 1U);
  EXPECT_EQ(published.findings()[0].kind, "forward");
  EXPECT_EQ(published.findings()[0].step, 3);
}

TEST(NanWatch, names_the_loss) {
  const Published published;
  auto weight = torch::ones({3}).set_requires_grad(true);
  torch::optim::SGD optimizer({weight}, 0.1);
  const auto watching = nan_watch();
  const auto train = [&](double scale) {
    optimizer.zero_grad();
    (weight * scale).exp().sum().backward();
    optimizer.step();
  };
  train(1);
  train(1000);
  ASSERT_EQ(published.findings().size(), 1U);
  EXPECT_EQ(published.findings()[0].verdict, "inf");
  EXPECT_EQ(published.findings()[0].kind, "forward");
  EXPECT_EQ(published.findings()[0].step, 2);
  EXPECT_THAT(published.findings()[0].message, HasSubstr("the loss, which sum gave"));
}

TEST(NanWatch, names_the_optimizer_and_tells_once_until_all_is_well_again) {
  const Published published;
  auto weight = torch::ones({3}).set_requires_grad(true);
  torch::optim::SGD optimizer({weight}, 0.1);
  const auto watching = nan_watch(weight);
  const auto train = [&](double rate) {
    optimizer.zero_grad();
    (weight * 1e3).sum().backward();
    static_cast<torch::optim::SGDOptions&>(optimizer.param_groups()[0].options()).lr(rate);
    optimizer.step();
  };
  train(1e38);
  train(1e38);
  EXPECT_EQ(published.findings().size(), 1U);
  EXPECT_EQ(published.findings()[0].kind, "optimizer");
  {
    torch::NoGradGuard guard;
    weight.zero_();
  }
  train(0.1);
  train(0.1);
  train(1e38);
  EXPECT_EQ(published.findings().size(), 2U);
  EXPECT_EQ(watching.status().bad_steps, 3);
  EXPECT_THAT(nan_status(), HasSubstr("off"));
  nan_on({});
  train(0.1);
  EXPECT_THAT(nan_status(), HasSubstr("on: 1 step, 1 of them bad; looked at 1 loss, 1 gradient and 1 update"));
  nan_off();
}

TEST(NanWatch, names_can_be_told_later) {
  const Published published;
  nan_on({});
  auto weight = torch::ones({3}).set_requires_grad(true);
  torch::optim::SGD optimizer({weight}, 1e38);
  TensorNames names;
  names.learn("weight", weight);
  nan_names(names);
  (weight * 1e3).sum().backward();
  optimizer.step();
  nan_off();
  nan_names(names);
  ASSERT_EQ(published.findings().size(), 1U);
  EXPECT_EQ(published.findings()[0].tensors.at(0).name, "weight");
}

TEST(NanWatch, training_is_bit_identical) {
  const auto train = [](bool watched) {
    std::vector<torch::Tensor> result;
    std::mutex mutex;
    spawn_ranks(2, [&](int rank, int) {
      auto net = ddp::DistributedDataParallel(std::make_shared<Net>());
      torch::optim::Adam optimizer(net.parameters(), 1e-2);
      std::unique_ptr<NanWatch> watching;
      if (watched) watching = std::make_unique<NanWatch>(nan_watch(net));
      for (int step = 0; step < 5; ++step) {
        optimizer.zero_grad();
        net(input() + rank + step).square().mean().backward();
        optimizer.step();
      }
      const std::lock_guard lock(mutex);
      if (rank == 0)
        for (auto& each : net.parameters()) result.push_back(each.detach().clone());
    });
    return result;
  };
  const auto watched = train(true), plain = train(false);
  for (size_t i = 0; i < plain.size(); ++i) EXPECT_TRUE(torch::equal(watched[i], plain[i]));
}

}  // namespace
}  // namespace lockstep::inspect
