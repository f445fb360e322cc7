// nan and memory that has not been written: reading it is a finding, writing to it is none.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <functional>

#include "inspectors/nan/nan.h"
#include "tests/inspectors/nan_fixture.h"
#include "tests/inspectors/reports.h"

namespace lockstep::inspect {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(Nan, what_lay_in_memory_before_it_was_written_is_nobodys_fault) {
  auto net = std::make_shared<ReluNet>();
  const auto data = relu_input();
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
  EXPECT_EQ(only_finding(report).verdict, Verdict::ok) << report;
  EXPECT_THAT(only_finding(report).message, Not(HasSubstr("were not used")));
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
  const Report drawn = replay([] { return torch::empty({2}).log_normal_(/*mean=*/1000); });
  EXPECT_EQ(only_finding(drawn).op->name, "log_normal_") << drawn;
}

TEST_F(Nan, an_out_that_was_bad_before_is_not_why_its_writer_made_a_bad_value) {
  const auto data = torch::full({2}, -1.0);
  const Report report = replay([&] {
    auto out = torch::empty({2});
    torch::log_out(out, data);
    return torch::sqrt_out(out, data);
  });
  EXPECT_EQ(only_finding(report).op->name, "sqrt") << report;
  EXPECT_THAT(only_finding(report).message, HasSubstr("self float32 [2] in [-1, -1]"));
  EXPECT_THAT(only_finding(report).message, Not(HasSubstr("out float32")));
}

TEST_F(Nan, memory_that_is_read_unwritten_is_a_finding) {
  const Report report = replay([] { return torch::empty({2}) * 2; });
  EXPECT_THAT(only_finding(report).message, HasSubstr("memory that was never written was read, allocated by empty"));
}

}  // namespace
}  // namespace lockstep::inspect
