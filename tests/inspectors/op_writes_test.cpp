// What operators write: that LibTorch does what the lists of names say, and what schemas say.
#include "inspectors/trace/op_writes.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "inspectors/trace/op_record.h"

namespace lockstep::inspect {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// Asks about the last operator that the program has called.
struct AskedOperator : OpObserver {
  std::string name;
  std::vector<size_t> overwritten;  // its arguments
  bool in_place = false;

  void before(RunningOp& op, c10::ArrayRef<c10::IValue> inputs) override {
    if (op.outer) return;
    name = op.name;
    in_place = writes_in_place(op);
    overwritten.clear();
    for (size_t i = 0; i < inputs.size(); ++i)
      if (overwrites(op, i)) overwritten.push_back(i);
  }
  void after(RunningOp& /*op*/, const std::vector<c10::IValue>& /*outputs*/) override {}
};

std::shared_ptr<AskedOperator> asked(const std::function<void()>& calls) {
  auto result = std::make_shared<AskedOperator>();
  const OpTrace trace(result, {});
  calls();
  return result;
}

std::shared_ptr<OpRecord> recorded(const std::function<void()>& calls) {
  auto result = std::make_shared<OpRecord>(100);
  const OpTrace trace(result, {});
  calls();
  return result;
}

TEST(OpWrites, what_overwrites_its_target_reads_none_of_it) {
  const auto ones = torch::ones({8});
  const std::vector<std::function<void(torch::Tensor&)>> calls = {
      [](auto& t) { t.zero_(); },
      [](auto& t) { t.fill_(1); },
      [&](auto& t) { t.fill_(ones[0]); },
      [&](auto& t) { t.copy_(ones); },
      [](auto& t) { at::_foreach_zero_({t}); },
      [&](auto& t) { at::_foreach_copy_({t}, {ones}); },
      [](auto& t) { t.uniform_(); },
      [](auto& t) { t.normal_(); },
      [](auto& t) { t.log_normal_(); },
      [](auto& t) { t.random_(); },
      [](auto& t) { t.random_(9); },
      [](auto& t) { t.bernoulli_(0.5); },
      [&](auto& t) { t.bernoulli_(ones); },
      [](auto& t) { t.cauchy_(); },
      [](auto& t) { t.geometric_(0.5); },
      [](auto& t) { t.exponential_(); },
      [&](auto& t) { t.set_(ones); },
  };
  for (const auto& call : calls) {
    auto target = torch::full({8}, std::nan(""));
    const auto op = asked([&] { call(target); });
    EXPECT_THAT(op->overwritten, ElementsAre(0)) << op->name;
    EXPECT_EQ(op->in_place, op->name != "set_") << op->name;
    EXPECT_FALSE(target.isnan().any().item<bool>()) << op->name;
  }
}

TEST(OpWrites, what_reads_its_target_does_not_overwrite_it) {
  auto target = torch::full({8}, std::nan(""));
  for (const std::function<void()>& call : std::vector<std::function<void()>>{
           [&] { target.mul_(0); }, [&] { target.clamp_(0, 1); }, [&] { at::_foreach_mul_({target}, 0); }}) {
    const auto op = asked(call);
    EXPECT_THAT(op->overwritten, IsEmpty()) << op->name;
    EXPECT_TRUE(op->in_place) << op->name;
    EXPECT_TRUE(target.isnan().all().item<bool>()) << op->name;
  }
}

TEST(OpWrites, an_out_is_overwritten_and_the_other_arguments_are_not) {
  const auto data = torch::ones({2});
  auto out = torch::empty({2});
  const auto op = asked([&] { torch::add_out(out, data, data); });
  EXPECT_THAT(op->overwritten, ElementsAre(3));  // after self, other and alpha
  EXPECT_TRUE(op->in_place);
}

TEST(OpWrites, what_gets_another_shape_is_not_written) {
  auto matrix = torch::ones({2, 1});
  EXPECT_FALSE(asked([&] { matrix.t_(); })->in_place);
  EXPECT_FALSE(asked([&] { matrix.squeeze_(); })->in_place);
  EXPECT_FALSE(asked([&] { matrix.resize_({1}); })->in_place);
  EXPECT_FALSE(asked([&] { matrix.view({1}); })->in_place);
  const auto mask = torch::ones({1}, torch::kBool);
  EXPECT_FALSE(asked([&] { torch::__and__(mask, mask); })->in_place);
}

TEST(OpWrites, a_record_has_who_wrote_an_out) {
  const auto data = torch::ones({2});
  const auto record = recorded([&] {
    auto out = torch::empty({2});
    torch::add_out(out, data, data);
    out.neg();
  });
  ASSERT_EQ(record->entries().size(), 3U);
  EXPECT_EQ(record->inputs(record->entries()[2])[0].from, 1);
  EXPECT_NE(record->inputs(record->entries()[2])[0].hash, 0U);
}

TEST(OpWrites, a_record_has_no_hash_of_what_nobody_has_written) {
  const auto record = recorded([&] {
    auto out = torch::empty({2, 3});
    out.t_().resize_({2}).neg();
  });
  for (const OpEntry& entry : record->entries())
    if (record->text(entry.name) != "neg")
      for (size_t i = 0; i < entry.outputs; ++i) EXPECT_EQ(record->outputs(entry)[i].hash, 0U);
  ASSERT_EQ(record->entries().size(), 4U);
  EXPECT_EQ(record->inputs(record->entries()[3])[0].hash, 0U);
}

}  // namespace
}  // namespace lockstep::inspect
