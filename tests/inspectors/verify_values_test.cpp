// verify on what is no tensor: numbers, strings, containers, JSON.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "inspectors/subject/saved_state.h"
#include "inspectors/verify/verify.h"
#include "tests/inspectors/replicas.h"
#include "tests/inspectors/reports.h"
#include "tests/support/spawn_ranks.h"

namespace lockstep::inspect {
namespace {

using ::testing::HasSubstr;
using testing::spawn_ranks;

TEST(Verify, PlainValuesAndContainers) {
  spawn_ranks(2, [](int rank, int) {
    EXPECT_TRUE(verify(42, verify_options()).ok());
    EXPECT_TRUE(verify(std::string("cosine"), verify_options()).ok());
    EXPECT_TRUE(verify(std::vector<double>{1.0, std::nan("")}, verify_options()).ok());
    EXPECT_FALSE(verify(std::vector<double>{1.0, rank ? std::nan("") : INFINITY}, verify_options()).ok());
    const Report report = verify(0.1 + rank, VerifyOptions().name("lr"));
    EXPECT_FALSE(report.ok());
    EXPECT_EQ(report.findings[0].kind, FindingKind::value);
    EXPECT_THAT(report.findings[0].message, HasSubstr("0.1 on rank 0, 1.1 on rank 1"));
    const std::map<std::string, std::vector<torch::Tensor>> nested = {
        {"x", {torch::ones({2}), torch::full({2}, rank)}}};
    EXPECT_EQ(verify(nested, verify_options()).findings[0].tensors[0].name, "x[1]");
    EXPECT_FALSE(verify(std::pair(1, rank), verify_options()).ok());
    EXPECT_FALSE(verify(std::optional<torch::Tensor>(torch::full({1}, rank)), verify_options()).ok());
  });
}

TEST(Verify, StringsThatAreNoTextAndNumbersThatAreNoneAreToldApart) {
  spawn_ranks(2, [](int rank, int) {
    EXPECT_FALSE(verify(std::string(rank ? "\xff" : "\xfe"), verify_options()).ok());
    EXPECT_TRUE(verify(std::string("\xff"), verify_options()).ok());
    EXPECT_FALSE(verify(nlohmann::json{{"loss", rank ? std::nan("") : INFINITY}}, verify_options()).ok());
    EXPECT_THAT(verify(nlohmann::json{{"a", rank}, {"b", {1.5, "x"}}}, verify_options()).findings[0].message,
                HasSubstr("{\"a\": 0, \"b\": [1.5, \"x\"]} on rank 0"));
  });
}

TEST(Verify, LongValuesAreShownWhereTheyPart) {
  spawn_ranks(2, [](int rank, int) {
    const std::string value = std::string(100, 'x') + (rank ? "this" : "that") + std::string(100, 'y');
    const std::string message = only_finding(verify(value, verify_options())).message;
    EXPECT_THAT(message, HasSubstr("; ...xx"));
    EXPECT_THAT(message, HasSubstr("xxthatyy"));
    EXPECT_THAT(message, HasSubstr("yy... on rank 0, ...xx"));
    EXPECT_THAT(message, HasSubstr("xxthisyy"));
    EXPECT_LT(message.size(), 200U);
  });
}

TEST(Verify, KeysThatReadAlikeAndEmptyContainersAreToldApart) {
  spawn_ranks(2, [](int rank, int) {
    using Map = std::map<std::string, torch::Tensor>;
    const auto tensor = [](double value) { return torch::full({2}, value); };
    const auto same =
        std::make_tuple(std::map<std::string, Map>{{"a", {{"b.c", tensor(1)}}}, {"a.b", {{"c", tensor(rank)}}}},
                        rank ? Map{{"more", tensor(1)}} : Map{{"other", tensor(1)}});
    const Report report = verify(same, verify_options());
    EXPECT_TRUE(std::ranges::any_of(report.findings, [](const Finding& each) {
      return each.verdict == Verdict::mismatch;
    })) << report;
    using Maps = std::map<std::string, Map>;
    EXPECT_FALSE(verify(rank ? Maps{{"state", {}}} : Maps{}, verify_options()).ok());
  });
}

TEST(Verify, FunctionsAreNothingToLookInto) {
  const auto lambda = [] {};  // dereferencing it gives a function, and that as often as one likes
  static_assert(!detail::Pointer<decltype(lambda)> && !detail::LeadsToObject<decltype(lambda)>);
  static_assert(detail::Pointer<std::shared_ptr<int>> && detail::LeadsToObject<std::shared_ptr<int>>);
}

}  // namespace
}  // namespace lockstep::inspect
