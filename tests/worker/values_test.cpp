// What cells show, and the names that they see.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/fake_hub.h"

namespace lockstep::testing {
namespace {

using namespace protocol;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

struct Values : ::testing::Test {
  void SetUp() override { hub.start_ready(); }
  void run(const std::string& cell) {
    done = hub.run_cell("with_torch", cell);
    EXPECT_EQ(done.status, CellStatus::ok) << (done.error ? done.error->message : "");
  }
  Value next() { return hub.expect<Value>(); }
  void expect(const std::string& text, const json& data) {
    const auto value = next();
    EXPECT_EQ(value.text, text);
    EXPECT_EQ(value.data, data);
    EXPECT_EQ(value.cell, done.cell);
  }
  FakeHub hub;
  Done done;
};

TEST_F(Values, OfNumbers) {
  run("numbers");
  expect("42", 42);
  expect("18446744073709551615", 18446744073709551615u);
  expect("0.1", 0.1);
  EXPECT_EQ(next().text, "0.1");
  expect("true", true);
  expect("'c'", "c");
  expect("'\\n'", "\n");
  expect("nan", "nan");
}

TEST_F(Values, OfTexts) {
  run("texts");
  expect("\"abc\"", "abc");
  expect("\"say \\\"hi\\\"\\n\"", "say \"hi\"\n");
  expect("nullptr", nullptr);
}

TEST_F(Values, OfContainers) {
  run("containers");
  expect("{1, 2, 3}", json::array({1, 2, 3}));
  expect("{true, false}", json::array({true, false}));
  expect("{\"a\": {1, 2.5}, \"b\": {}}", json{{"a", {1.0, 2.5}}, {"b", json::array()}});
  expect("{1: 2}", json::array({json::array({1, 2})}));
  expect("(1, \"x\")", json::array({1, "x"}));
  expect("nullopt", nullptr);
  expect("5", 5);
  expect("\"v\"", "v");
  expect("7", 7);
  const auto longest = next();
  EXPECT_THAT(longest.text, HasSubstr("and 4000 more"));
  EXPECT_TRUE(longest.data.is_null()) << "not all of it is there";
}

TEST_F(Values, OfTensors) {
  run("tensors");
  const auto ones = next();
  EXPECT_EQ(ones.text, "tensor([[1., 1.],\n        [1., 1.]], size=(2, 2), dtype=float32, device='cpu')");
  EXPECT_EQ(ones.data, json::array({{1.0, 1.0}, {1.0, 1.0}}));
  EXPECT_EQ(next().data, 2.5);
  EXPECT_TRUE(next().data.is_null());
  EXPECT_THAT(next().text, HasSubstr("undefined"));
  EXPECT_EQ(next().text,
            "nested_tensor([\n  tensor([1., 1.], size=(2,), dtype=float32, device='cpu'),\n"
            "  tensor([0.], size=(1,), dtype=float32, device='cpu')\n])");
  EXPECT_THAT(next().text, StartsWith("tensor(crow_indices=tensor([0, 1, 2], size=(3,), dtype=int64, device='cpu'),\n"
                                      "       col_indices=tensor([0, 1], "));
  EXPECT_THAT(next().text, HasSubstr("row_indices=tensor([0, 1], "));
}

TEST_F(Values, OfClassesShowNoGeneratedName) {
  run("classes");
  EXPECT_THAT(next().text, AllOf(StartsWith("Net("), HasSubstr("torch::nn::Linear(in_features=2")));
  EXPECT_THAT(next().text, StartsWith("Net("));
  EXPECT_THAT(next().text, StartsWith("torch::nn::Linear(in_features=3"));
  expect("Plain{.x = 1}", json{{"x", 1}});
  EXPECT_EQ(next().text, "(1;2)");
  expect("Colour::green", 1);
  expect("on", 1);
  EXPECT_EQ(next().text, "1.5 s");
}

TEST_F(Values, OfNothingAreNotShown) {
  run("nothings");
  EXPECT_FALSE(hub.has<Value>());
  EXPECT_EQ(hub.output(done.cell), "streamed");
}

TEST_F(Values, StandBetweenTheOutputAroundThem) {
  run("in_between");
  std::string order;
  for (const auto& seen : hub.seen)
    if (seen.kind == "output" || seen.kind == "value") order += seen.text + "|";
  EXPECT_EQ(order, "before|1|after|2|");
}

TEST_F(Values, OfTheNamesThatCellsSee) {
  run("names");
  EXPECT_EQ(hub.output(done.cell), "0 1 0 0 -1 cpu 1 0 1 3 3 9 none");
  run("seeds");
  expect("true", true);
}

TEST_F(Values, ThatAreNotThereAreExplained) {
  auto ended = hub.run_cell("with_torch", "unknown_argument");
  ASSERT_TRUE(ended.error);
  EXPECT_THAT(ended.error->message, HasSubstr("--arg lost=VALUE"));
  ended = hub.run_cell("with_torch", "unknown_get");
  ASSERT_TRUE(ended.error);
  EXPECT_THAT(ended.error->message, HasSubstr("\"lrank\""));
}

TEST_F(Values, ErrorsOfLibTorchComeWithoutItsOwnStack) {
  const auto ended = hub.run_cell("with_torch", "torch_error");
  ASSERT_TRUE(ended.error);
  EXPECT_EQ(ended.error->type, "c10::Error");
  EXPECT_THAT(ended.error->message, AllOf(HasSubstr("mat1 and mat2"), Not(HasSubstr("frame #"))));
}

TEST_F(Values, PrintedByLibTorchShowNoGeneratedName) {
  run("type_name");
  EXPECT_THAT(hub.output(done.cell), AllOf(StartsWith("Net("), HasSubstr(" Plain"), Not(HasSubstr("__cell"))));
}

}  // namespace
}  // namespace lockstep::testing
