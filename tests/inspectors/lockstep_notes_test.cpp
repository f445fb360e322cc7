// lockstep: reductions that were not waited for, losses that are means of a rank's own, numbers that differ, sums that
// run over.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <condition_variable>
#include <mutex>

#include "collectives/dist.h"
#include "inspectors/lockstep/lockstep.h"
#include "lockstep/ddp.h"
#include "tests/inspectors/lockstep_steps.h"
#include "tests/support/spawn_ranks.h"

namespace lockstep::inspect {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::spawn_ranks;

const Finding* find(const Report& report, FindingKind kind) {
  for (const Finding& each : report.findings)
    if (each.kind == kind) return &each;
  return nullptr;
}

const Finding& the_ok(const Report& report) {
  for (const Finding& each : report.findings)
    if (each.verdict == Verdict::ok) return each;
  ADD_FAILURE() << report;
  static const Finding none;
  return none;
}

/// A gate that one rank opens, and others wait at.
class Gate {
 public:
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
};

std::shared_ptr<torch::nn::LinearImpl> linear() {
  auto net = std::make_shared<torch::nn::LinearImpl>(4, 3);
  const torch::NoGradGuard guard;
  net->weight.copy_(torch::arange(12.0).reshape({3, 4}).mul(0.01));
  net->bias.zero_();
  return net;
}

/// A step whose reductions rank 0 does not wait for: rank 1 comes to them only when rank 0 has stepped.
Report step_before_the_reduction(int rank, double data, double weight_decay, Gate& stepped) {
  auto net = linear();
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1).weight_decay(weight_decay));
  return lockstep_ranks(
      [&] {
        net->forward(step_input() + data).square().mean().backward();
        if (rank == 1) stepped.wait();
        std::vector<dist::Work> works;
        for (auto& each : net->parameters())
          works.push_back(dist::all_reduce(each.grad(), dist::ReduceOp::SUM, {}, /*async_op=*/true));
        optimizer.step();
        if (rank == 0) stepped.open();
        for (dist::Work& each : works) each.wait();
      },
      net, lockstep_options());
}

TEST(LockstepNotes, an_update_before_the_reduction_is_waited_for_is_named) {
  for (const double weight_decay : {0.0, 0.01}) {
    Gate stepped;
    spawn_ranks(2, [&](int rank, int) {
      const Report report = step_before_the_reduction(rank, rank, weight_decay, stepped);
      ASSERT_FALSE(report.findings.empty());
      const Finding& found = report.findings[0];
      EXPECT_EQ(found.severity, Severity::fault) << report;
      EXPECT_EQ(found.kind, FindingKind::update) << report;
      EXPECT_THAT(found.message, HasSubstr("all_reduce #1 was still running on rank"));
      EXPECT_THAT(found.message, HasSubstr("work.wait()"));
      EXPECT_THAT(found.message, Not(HasSubstr("state of the optimizer")));
    });
  }
}

TEST(LockstepNotes, a_reduction_that_was_read_too_early_is_a_note_where_ranks_are_equal) {
  // Both see the halves of equal sums, or neither does: the step of a rank reads before the other has come.
  Gate stepped;
  spawn_ranks(2, [&](int rank, int) {
    auto gradient = torch::ones({8});
    const Report report = lockstep_ranks(
        [&] {
          if (rank == 1) stepped.wait();
          auto zeros = torch::zeros({8});
          auto work = dist::all_reduce(zeros, dist::ReduceOp::SUM, {}, /*async_op=*/true);
          auto read = zeros + 1;
          if (rank == 0) stepped.open();
          work.wait();
          dist::all_reduce(read);
        },
        lockstep_options());
    const Finding* found = find(report, FindingKind::in_flight);
    ASSERT_TRUE(found) << report;
    EXPECT_EQ(found->severity, Severity::note);
    EXPECT_TRUE(found->ranks.contains(0));
    EXPECT_THAT(found->message, HasSubstr("all_reduce #1 was still running on rank"));
    EXPECT_TRUE(report.ok());
  });
}

TEST(LockstepNotes, reductions_that_are_waited_for_are_not) {
  spawn_ranks(2, [](int rank, int) {
    auto net = linear();
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    const Report report = lockstep_ranks(
        [&] {
          net->forward(step_input(rank)).square().mean().backward();
          std::vector<dist::Work> works;
          for (auto& each : net->parameters())
            works.push_back(dist::all_reduce(each.grad(), dist::ReduceOp::SUM, {}, /*async_op=*/true));
          for (dist::Work& each : works) each.wait();
          optimizer.step();
        },
        net, lockstep_options());
    EXPECT_EQ(report.findings.size(), 1U) << report;
    EXPECT_EQ(report.findings[0].verdict, Verdict::ok);
  });
}

TEST(LockstepNotes, texts_and_lists_that_differ_are_told_with_name_and_values_but_no_sizes) {
  spawn_ranks(2, [](int rank, int) {
    auto net = ddp::DistributedDataParallel(linear());
    using Sizes = std::vector<int64_t>;
    const torch::Tensor x = step_input(rank);
    const Report report = lockstep_ranks(
        [&] {
          const auto y = torch::gelu(net(x), rank == 0 ? "none" : "tanh");
          const auto sum = y.sum(rank == 0 ? Sizes{0, 1} : Sizes{1, 0});
          (sum + y.view(rank == 0 ? Sizes{2, 6} : Sizes{12}).sum() + y.clamp(std::nullopt, 5 + rank).sum()).backward();
        },
        lockstep_options());
    const std::string& message = the_ok(report).message;
    EXPECT_THAT(message, HasSubstr("differs (as it may) from addmm"));
    EXPECT_THAT(message, HasSubstr("an argument differs in gelu (operator"));
    EXPECT_THAT(message, HasSubstr("(argument 'approximate', value \"none\" on rank 0, \"tanh\" on rank 1)"));
    EXPECT_THAT(message, HasSubstr("(argument 'dim', value [0, 1] on rank 0, [1, 0] on rank 1)"));
    EXPECT_THAT(message, HasSubstr("(argument 'max', value 5 on rank 0, 6 on rank 1)"));
    EXPECT_THAT(message, Not(HasSubstr("in view")));
  });
}

TEST(LockstepNotes, numbers_that_differ_are_told_with_their_values_and_so_is_data) {
  spawn_ranks(2, [](int rank, int) {
    auto net = ddp::DistributedDataParallel(linear());
    const Report constant_first = lockstep_ranks(
        [&] {
          auto x = step_input() * (rank + 1.5);  // equal data, another scale
          (net(x).square().sum() + step_input(rank).sum()).add(1, rank).backward();
        },
        lockstep_options());
    const std::string& message = the_ok(constant_first).message;
    EXPECT_THAT(message, HasSubstr("data differs (as it may) from mul (operator"));
    EXPECT_THAT(message, HasSubstr("(argument 'other', value 1.5 on rank 0, 2.5 on rank 1)"));
    EXPECT_THAT(message, HasSubstr("an argument differs in add (operator"));
    EXPECT_THAT(message, HasSubstr("(argument 'other', value 0 on rank 0, 1 on rank 1)"));
  });
  spawn_ranks(2, [](int rank, int) {
    auto net = ddp::DistributedDataParallel(linear());
    const torch::Tensor x = step_input(), y = torch::ones({4, 3}) * rank;
    const Report report = lockstep_ranks(
        [&] {
          auto scaled = x * (rank + 1);
          torch::mse_loss(net(scaled), y).backward();
        },
        lockstep_options());
    // What differs because of the number is not reported again; what comes in beside it is.
    EXPECT_THAT(the_ok(report).message, HasSubstr("from mul (operator"));
    EXPECT_THAT(the_ok(report).message, HasSubstr("(argument 'other', value 1 on rank 0, 2 on rank 1)"));
    EXPECT_THAT(the_ok(report).message, HasSubstr("input data differs in mse_loss"));
    EXPECT_THAT(the_ok(report).message, HasSubstr("(argument 1, float32 [4, 3])"));
  });
}

TEST(LockstepNotes, numbers_that_are_equal_are_not_mentioned) {
  spawn_ranks(2, [](int rank, int) {
    auto net = ddp::DistributedDataParallel(linear());
    const torch::Tensor x = step_input(rank);
    const Report report = lockstep_ranks([&] { (net(x * 2).square().sum() / 3).backward(); }, lockstep_options());
    EXPECT_EQ(report.findings.size(), 1U) << report;
    EXPECT_THAT(the_ok(report).message, Not(HasSubstr("number")));
    EXPECT_THAT(the_ok(report).message, HasSubstr("data differs (as it may) from mul"));
  });
}

using Loss = std::function<torch::Tensor(const torch::Tensor&, int rank)>;

/// A step of a wrapper on batches of `rows` samples for each rank.
Report step_with(const Loss& loss, std::vector<int64_t> rows, int rank, bool wrapped = true) {
  auto module = linear();
  std::optional<ddp::DistributedDataParallel<torch::nn::LinearImpl>> net;
  if (wrapped) net.emplace(module);
  const torch::Tensor x = torch::rand({rows[static_cast<size_t>(rank)], 4});
  return lockstep_ranks([&] { loss(wrapped ? (*net)(x) : module->forward(x), rank).backward(); }, module,
                        lockstep_options());
}

TEST(LockstepNotes, losses_that_are_means_of_unequal_numbers_are_a_note) {
  spawn_ranks(2, [](int rank, int) {
    const auto expect_note = [&](const Report& report, const std::string& op, const std::string& counts) {
      const Finding* found = find(report, FindingKind::count);
      ASSERT_TRUE(found) << report;
      EXPECT_EQ(found->severity, Severity::note);
      EXPECT_EQ(found->verdict, Verdict::uneven_data);
      EXPECT_EQ(found->ranks, RankSet::all(2));
      EXPECT_THAT(found->message, HasSubstr(op));
      EXPECT_THAT(found->message, HasSubstr(counts));
      EXPECT_TRUE(report.ok());
    };
    expect_note(step_with([](const auto& y, int) { return y.square().mean(); }, {4, 6}, rank), "mean (operator",
                "(12 on rank 0, 18 on rank 1)");
    expect_note(step_with([](const auto& y, int) { return torch::mse_loss(y, torch::zeros_like(y)); }, {4, 6}, rank),
                "mse_loss", "(12 on rank 0, 18 on rank 1)");
    expect_note(step_with([](const auto& y, int) { return y.square().sum() / y.size(0); }, {4, 6}, rank), "div",
                "(4 on rank 0, 6 on rank 1)");
    const auto masked = [](const torch::Tensor& y, int r) {
      const auto mask = torch::arange(4).lt(r + 2).to(torch::kFloat);
      return (y.square().sum(1) * mask).sum() / mask.sum();
    };
    expect_note(step_with(masked, {4, 4}, rank), "div", "(2 on rank 0, 3 on rank 1)");
    // As many samples, of which a rank ignores some.
    const auto ignoring = [](const torch::Tensor& y, int r) {
      const auto target = (torch::arange(4) % 3).masked_fill(torch::arange(4).lt(3 * r), -100);
      return torch::nn::functional::cross_entropy(y, target);
    };
    expect_note(step_with(ignoring, {4, 4}, rank), "cross_entropy_loss", "(4 on rank 0, 1 on rank 1)");
    const auto weighted = [](const torch::Tensor& y, int r) {
      return torch::nn::functional::cross_entropy(
          y, torch::full({4}, r, torch::kLong),
          torch::nn::functional::CrossEntropyFuncOptions().weight(torch::tensor({1.0f, 3.0f, 1.0f})));
    };
    expect_note(step_with(weighted, {4, 4}, rank), "cross_entropy_loss", "(4 on rank 0, 12 on rank 1)");
  });
}

TEST(LockstepNotes, losses_that_are_divided_alike_or_weighted_again_are_no_note) {
  spawn_ranks(2, [](int rank, int) {
    const auto silent = [&](const Report& report) {
      EXPECT_FALSE(find(report, FindingKind::count)) << report;
      EXPECT_TRUE(report.ok());
    };
    silent(step_with([](const auto& y, int) { return y.square().mean(); }, {4, 4}, rank));
    silent(step_with([](const auto& y, int) { return y.square().sum() / 10 * 2; }, {4, 6}, rank));
    silent(step_with([](const auto& y, int) { return y.square().mean() * y.size(0) / 10 * 2; }, {4, 6}, rank));
    silent(step_with([](const auto& y, int) { return y.square().mean(); }, {4, 6}, rank, /*wrapped=*/false));
    // A number that is looked at on the side divides nothing that is learnt from.
    silent(step_with(
        [](const auto& y, int) {
          const double shown = y.detach().mean().template item<double>();
          return y.square().sum() / (shown < 1e30 ? 10 : 11);
        },
        {4, 6}, rank));
    // Means over a dimension are values of each sample.
    silent(step_with([](const auto& y, int) { return y.square().mean(1).sum(); }, {4, 6}, rank));
  });
}

TEST(LockstepNotes, gradients_that_are_weighted_by_the_count_are_no_note) {
  spawn_ranks(2, [](int rank, int) {
    auto net = linear();
    const torch::Tensor x = torch::rand({rank == 0 ? 4 : 6, 4});
    const Report report = lockstep_ranks(
        [&] {
          net->forward(x).square().mean().backward();
          for (auto& each : net->parameters()) {
            each.mutable_grad().mul_(x.size(0));
            dist::all_reduce(each.grad());
            each.mutable_grad().div_(10);
          }
        },
        net, lockstep_options());
    EXPECT_FALSE(find(report, FindingKind::count)) << report;
    EXPECT_TRUE(report.ok());
  });
}

TEST(LockstepNotes, another_number_of_micro_batches_is_counted) {
  spawn_ranks(3, [](int rank, int) {
    auto net = ddp::DistributedDataParallel(linear());
    const Report report = lockstep_ranks(
        [&] {
          {
            const auto scope = net.no_sync();
            for (int i = 0; i < (rank == 1 ? 3 : 2); ++i) net(step_input(rank)).square().mean().backward();
          }
          net(step_input(rank)).square().mean().backward();
        },
        lockstep_options());
    ASSERT_EQ(report.findings.size(), 1U);
    EXPECT_EQ(report.findings[0].verdict, Verdict::op_mismatch);
    EXPECT_THAT(report.findings[0].message, HasSubstr("backward passes in total: 3 on ranks 0,2, 4 on rank 1"));
  });
}

TEST(LockstepNotes, a_sum_of_integers_that_runs_over_is_proven) {
  spawn_ranks(2, [](int rank, int) {
    for (const bool reads : {false, true}) {
      auto counts = torch::tensor({200, 1, 2}, torch::kUInt8);
      torch::Tensor read;
      const Report report = lockstep_ranks(
          [&] {
            dist::all_reduce(counts);
            if (reads) read = counts.to(torch::kFloat);
            if (reads) counts.zero_();
          },
          lockstep_options());
      EXPECT_FALSE(report.ok());
      const Finding* found = find(report, FindingKind::overflow);
      ASSERT_TRUE(found) << report;
      EXPECT_EQ(found->severity, Severity::fault);
      EXPECT_EQ(found->verdict, Verdict::mismatch);
      EXPECT_EQ(found->ranks, RankSet::all(2));
      EXPECT_EQ(found->op->name, "all_reduce");
      EXPECT_EQ(found->op->dtype, "uint8");
      EXPECT_THAT(found->message, HasSubstr("the inputs of all ranks add up to 406, the result to 150"));
      EXPECT_THAT(found->message, HasSubstr("The largest uint8 is 255"));
    }
    auto large = torch::full({2}, rank == 0 ? 2'000'000'000 : 500'000'000, torch::kInt32);
    const Report of_32_bits = lockstep_ranks([&] { dist::all_reduce(large); }, lockstep_options());
    EXPECT_TRUE(find(of_32_bits, FindingKind::overflow)) << of_32_bits;
    // Only the root has the result of a reduce.
    auto small = torch::full({2}, 100, torch::kInt8);
    const Report reduced = lockstep_ranks([&] { dist::reduce(small, 1); }, lockstep_options());
    EXPECT_TRUE(find(reduced, FindingKind::overflow)) << reduced;
  });
}

TEST(LockstepNotes, sums_that_fit_and_maxima_are_no_overflow) {
  spawn_ranks(3, [](int rank, int) {
    const auto silent = [](const Report& report) { EXPECT_FALSE(find(report, FindingKind::overflow)) << report; };
    auto counts = torch::full({4}, rank == 0 ? 250 : 1, torch::kUInt8);  // 252: it might have run over
    silent(lockstep_ranks([&] { dist::all_reduce(counts); }, lockstep_options()));
    auto most = torch::full({4}, 250, torch::kUInt8);
    silent(lockstep_ranks([&] { dist::all_reduce(most, dist::ReduceOp::MAX); }, lockstep_options()));
    auto wide = torch::full({4}, 250, torch::kInt64);
    silent(lockstep_ranks([&] { dist::all_reduce(wide); }, lockstep_options()));
    auto both_signs = torch::full({4}, rank == 0 ? 120 : -60, torch::kInt8);
    silent(lockstep_ranks([&] { dist::all_reduce(both_signs); }, lockstep_options()));
    // What a program writes by hand before it looks is no overflow, and no proof of one.
    auto written = torch::full({4}, 100, torch::kUInt8);
    silent(lockstep_ranks(
        [&] {
          dist::all_reduce(written);
          written.data_ptr<uint8_t>()[0] = static_cast<uint8_t>(7);
        },
        lockstep_options()));
  });
}

}  // namespace
}  // namespace lockstep::inspect
