#include "protocol/rank_set.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "protocol/error.h"

namespace lockstep {
namespace {

struct Valid {
  const char* spec;
  int world_size;
  const char* folded;
};

void PrintTo(const Valid& one, std::ostream* stream) { *stream << "'" << one.spec << "' of " << one.world_size; }

class ValidSpec : public testing::TestWithParam<Valid> {};

TEST_P(ValidSpec, NamesTheseRanks) {
  const auto& [spec, world_size, folded] = GetParam();
  EXPECT_EQ(parse_rank_set(spec, world_size).str(), folded) << spec;
}

INSTANTIATE_TEST_SUITE_P(RankSet, ValidSpec,
                         testing::Values(Valid{"all", 4, "0-3"}, Valid{"3", 4, "3"}, Valid{"0,2", 4, "0,2"},
                                         Valid{"0-3", 4, "0-3"}, Valid{"0:8:2", 8, "0,2,4,6"}, Valid{"::2", 5, "0,2,4"},
                                         Valid{"1::2", 4, "1,3"}, Valid{"-2:", 4, "2-3"}, Valid{":-1", 4, "0-2"},
                                         Valid{"^1", 4, "0,2-3"}, Valid{"0-3,^1-2", 4, "0,3"},
                                         Valid{"[0,2-4]", 5, "0,2-4"}, Valid{"[ 0 , 2 - 3 ]", 4, "0,2-3"},
                                         Valid{"1,1,1", 2, "1"}, Valid{"2,0", 3, "0,2"}, Valid{"all,^0", 2, "1"},
                                         Valid{"0", 1, "0"}, Valid{"00", 1, "0"}));

TEST(RankSet, InWords) {
  EXPECT_EQ(RankSet{4}.words(), "rank 4");
  EXPECT_EQ((RankSet{0, 1, 2, 4}).words(), "ranks 0-2,4");
}

struct Invalid {
  const char* spec;
  int world_size;
  const char* part;  // what the message has to name
};

void PrintTo(const Invalid& one, std::ostream* stream) { *stream << "'" << one.spec << "' of " << one.world_size; }

class InvalidSpec : public testing::TestWithParam<Invalid> {};

TEST_P(InvalidSpec, NamesThePartAndTheRanksThatExist) {
  const auto& [spec, world_size, part] = GetParam();
  try {
    const auto set = parse_rank_set(spec, world_size);
    FAIL() << spec << " was taken for " << set.str();
  } catch (const UsageError& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find(std::string("'") + part + "'"), std::string::npos) << message;
    EXPECT_NE(message.find(world_size == 1 ? "the only rank is 0" : "ranks are 0-"), std::string::npos) << message;
  }
}

INSTANTIATE_TEST_SUITE_P(
    RankSet, InvalidSpec,
    testing::Values(Invalid{"[7]", 4, "7"}, Invalid{"2-0", 4, "2-0"}, Invalid{"[]", 4, "[]"}, Invalid{"", 4, ""},
                    Invalid{"a", 4, "a"}, Invalid{"1:9", 4, "1:9"}, Invalid{"0,7", 4, "7"}, Invalid{"-1", 4, "-1"},
                    Invalid{"1-", 4, "1-"}, Invalid{"0;1", 4, "0;1"}, Invalid{"[0", 4, "[0"}, Invalid{"0]", 4, "0]"},
                    Invalid{"0,,1", 4, "0,,1"}, Invalid{"0,", 4, "0,"}, Invalid{"3:1", 4, "3:1"},
                    Invalid{"1:1", 4, "1:1"}, Invalid{"0:4:0", 4, "0:4:0"}, Invalid{"::-1", 4, "::-1"},
                    Invalid{"0:1:1:1", 4, "0:1:1:1"}, Invalid{"^0,^1", 2, "^0,^1"}, Invalid{"1", 1, "1"},
                    Invalid{"99999999999", 4, "99999999999"}, Invalid{"-9:", 4, "-9:"}, Invalid{"1.5", 4, "1.5"}));

TEST(RankSet, SetAlgebra) {
  const RankSet a{0, 1, 2}, b{2, 3};
  EXPECT_EQ((a | b).str(), "0-3");
  EXPECT_EQ((a & b).str(), "2");
  EXPECT_EQ((a - b).str(), "0-1");
  EXPECT_TRUE(a.contains(1));
  EXPECT_FALSE(a.contains(3));
  EXPECT_EQ(RankSet().str(), "none");
}

TEST(RankSet, JsonIsAListOfRanks) {
  const nlohmann::json json = RankSet{2, 0};
  EXPECT_EQ(json.dump(), "[0,2]");
  EXPECT_EQ(json.get<RankSet>(), (RankSet{0, 2}));
}

}  // namespace
}  // namespace lockstep
