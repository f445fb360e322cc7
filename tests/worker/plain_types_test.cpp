// Names of functions in stacks, with types as people write them.
#include "worker/cell/plain_types.h"

#include <gtest/gtest.h>

namespace lockstep::worker {
namespace {

constexpr const char* kText = "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char>>";

std::string basic_json(const std::string& object) {
  return "nlohmann::json_abi_v3_11_2::basic_json<" + object + ", std::vector, " + kText +
         ", bool, long, unsigned long, double, std::allocator, nlohmann::json_abi_v3_11_2::adl_serializer, "
         "std::vector<unsigned char, std::allocator<unsigned char>>>";
}

TEST(PlainTypes, AJsonValueIsCalledJson) {
  EXPECT_EQ(plain_types("lockstep::dist::all_gather_object(" + basic_json("std::map") + " const&, int)"),
            "lockstep::dist::all_gather_object(nlohmann::json const&, int)");
  EXPECT_EQ(plain_types(basic_json("nlohmann::json_abi_v3_11_2::ordered_map") + " f<" + basic_json("std::map") + ">()"),
            "nlohmann::ordered_json f<nlohmann::json>()");
  EXPECT_EQ(
      plain_types("nlohmann::json_abi_v3_11_2::detail::parser<" + basic_json("std::map") + ", char const*>::parse()"),
      "nlohmann::detail::parser<nlohmann::json, char const*>::parse()");
}

TEST(PlainTypes, AStringIsCalledString) {
  EXPECT_EQ(
      plain_types("train(" + std::string(kText) + " const&, std::basic_string_view<char, std::char_traits<char>>)"),
      "train(std::string const&, std::string_view)");
}

TEST(PlainTypes, OtherNamesStay) {
  for (const char* name :
       {"at::matmul(at::Tensor const&)", "operator->(nlohmann::basic", "f<a, b>::operator<(int)", ""})
    EXPECT_EQ(plain_types(name), name);
}

}  // namespace
}  // namespace lockstep::worker
