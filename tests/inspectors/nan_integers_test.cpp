// nan: integers that an operator reads are never bad, and may be why its result is.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include "inspectors/nan/nan.h"
#include "inspectors/trace/tensor_values.h"
#include "tests/support/spawn_ranks.h"

namespace lockstep::inspect {
namespace {

using ::testing::HasSubstr;
using testing::spawn_ranks;
namespace F = torch::nn::functional;

std::string message_of(const std::function<torch::Tensor()>& step) {
  std::string message;
  spawn_ranks(1, [&](int, int) {
    const Report report = replay(step);
    ASSERT_EQ(report.findings.size(), 1U) << report;
    EXPECT_EQ(report.findings[0].verdict, Verdict::nan) << report;
    message = report.findings[0].message;
  });
  return message;
}

TEST(NanIntegers, a_loss_whose_targets_are_all_ignored_says_so) {
  const torch::Tensor logits = torch::arange(12.0).reshape({4, 3});
  const auto ignored = torch::full({4}, -100, torch::kLong);
  EXPECT_THAT(message_of([&] { return F::cross_entropy(logits, ignored); }),
              HasSubstr("target int64 [4] in [-100, -100], 4 of 4 ignored (ignore_index -100)"));
  const auto padding = torch::zeros({4}, torch::kLong);
  EXPECT_THAT(
      message_of([&] { return F::nll_loss(logits.log_softmax(1), padding, F::NLLLossFuncOptions().ignore_index(0)); }),
      HasSubstr("target int64 [4] in [0, 0], 4 of 4 ignored (ignore_index 0)"));
}

TEST(NanIntegers, counts_and_masks_are_shown) {
  const torch::Tensor values = torch::zeros({2, 3});
  const auto none = torch::zeros({2, 3}, torch::kBool);
  EXPECT_THAT(message_of([&] { return (values * none).sum() / none.sum(); }), HasSubstr("other int64 [] in [0, 0]"));
  EXPECT_EQ(range_text(none), "0 of 6 true");
  EXPECT_EQ(range_text(torch::tensor({7, -1234567890}, torch::kLong)), "[-1234567890, 7]");
  EXPECT_EQ(range_text(torch::empty({0}, torch::kInt)), "[]");
}

}  // namespace
}  // namespace lockstep::inspect
