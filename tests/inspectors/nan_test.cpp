// nan: which operator made the first bad value, and what is no finding.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <cmath>
#include <functional>
#include <limits>
#include <sstream>

#include "inspectors/exchange/shown.h"
#include "inspectors/nan/nan.h"
#include "tests/inspectors/nan_fixture.h"
#include "tests/inspectors/reports.h"

namespace lockstep::inspect {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kInf = std::numeric_limits<double>::infinity();

TEST_F(Nan, a_good_step_is_ok) {
  auto net = std::make_shared<ReluNet>();
  torch::optim::Adam optimizer(net->parameters(), 1e-2);
  const Report report = replay(
      [&] {
        optimizer.zero_grad();
        auto loss = net->forward(relu_input()).square().mean();
        loss.backward();
        optimizer.step();
        return loss;
      },
      net, optimizer);
  EXPECT_EQ(only_finding(report).verdict, Verdict::ok) << report;
  EXPECT_GT(report.tensors, 20);
}

TEST_F(Nan, forward_names_operator_module_shapes_and_ranges) {
  auto net = std::make_shared<ReluNet>();
  const Report report = replay([&] { return net->forward(relu_input()).sub(1000).log().sum(); }, net);
  const Finding finding = only_finding(report);
  EXPECT_EQ(finding.severity, Severity::fault);
  EXPECT_EQ(finding.inspector, "nan");
  EXPECT_EQ(finding.verdict, Verdict::nan);
  EXPECT_EQ(finding.kind, FindingKind::forward);
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
  const Finding finding = only_finding(report);
  EXPECT_EQ(finding.op->name, "mul");
  EXPECT_EQ(finding.verdict, Verdict::inf);
  EXPECT_THAT(finding.message, HasSubstr("log_softmax made NaN of it"));
}

TEST_F(Nan, backward_names_the_forward_operator) {
  auto x = torch::tensor({0.0, 1.0}).set_requires_grad(true);
  const Report report = replay([&] { (x.sqrt() * torch::tensor({0.0, 1.0})).sum().backward(); }, x);
  const Finding finding = only_finding(report);
  EXPECT_EQ(finding.verdict, Verdict::nan) << report;
  EXPECT_EQ(finding.kind, FindingKind::backward);
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
  EXPECT_EQ(only_finding(report).verdict, Verdict::ok) << report;
}

TEST_F(Nan, a_branch_that_where_leaves_out_is_no_finding) {
  const Report report = replay([] {
    const auto x = torch::tensor({-1.0, 0.0, 2.0});
    return torch::where(x > 0, x.log(), torch::zeros({3})).sum();
  });
  EXPECT_EQ(only_finding(report).verdict, Verdict::ok) << report;
  EXPECT_THAT(only_finding(report).message, HasSubstr("were not used"));
}

TEST_F(Nan, a_row_that_is_masked_whole_is_a_finding) {
  const Report report = replay([] {
    auto scores = torch::zeros({2, 3}).set_requires_grad(true);
    return torch::softmax(scores.masked_fill(torch::ones({2, 3}, torch::kBool), -kInf), -1).sum();
  });
  const Finding finding = only_finding(report);
  EXPECT_EQ(finding.verdict, Verdict::nan);
  EXPECT_EQ(finding.op->name, "softmax");
}

TEST_F(Nan, what_came_in_bad_is_named) {
  auto net = std::make_shared<ReluNet>();
  {
    torch::NoGradGuard guard;
    net->second->bias[1] = std::nan("");
  }
  const Report report = replay([&] { return net->forward(relu_input()).sum(); }, net);
  const Finding finding = only_finding(report);
  EXPECT_THAT(finding.message, HasSubstr("came in with parameter second.bias"));
  EXPECT_EQ(finding.tensors.at(0).name, "second.bias");
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
  const Finding finding = only_finding(report);
  EXPECT_EQ(finding.verdict, Verdict::inf);
  EXPECT_EQ(finding.kind, FindingKind::optimizer);
  EXPECT_EQ(finding.op->name, "add_");
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
  EXPECT_EQ(only_finding(report).verdict, Verdict::inf) << report;
  EXPECT_EQ(only_finding(report).op->name, "log");
  EXPECT_THAT(only_finding(report).message, HasSubstr("it reached a value that was shown"));
  EXPECT_EQ(only_finding(traced([] { return torch::log(torch::zeros({2}) - 1) * 2; })).verdict, Verdict::nan);
  // By design, or in the eyes of nobody.
  EXPECT_EQ(only_finding(traced([] { return torch::full({2}, -kInf) + 1; })).verdict, Verdict::ok);
  EXPECT_EQ(only_finding(traced([] { return torch::softmax(torch::ones({3, 3}).tril().log(), -1); })).verdict,
            Verdict::ok);
  // An Inf that was there before the cell: a mask, perhaps. A NaN was made by somebody.
  const auto mask = torch::full({2}, -kInf), data = torch::full({2}, std::nan(""));
  EXPECT_EQ(only_finding(traced([&] { return mask * 2; })).verdict, Verdict::ok);
  EXPECT_THAT(only_finding(traced([&] { return data * 2; })).message, HasSubstr("came in with"));
  note_shown(data);  // nothing is traced
}

}  // namespace
}  // namespace lockstep::inspect
