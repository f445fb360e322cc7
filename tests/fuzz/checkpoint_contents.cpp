// What the files of %checkpoint have beside tensors, which %restore reads.
#include "ddp/checkpoint_contents.h"

#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "protocol/checksum.h"
#include "tests/fuzz/fuzz_target.h"

namespace lockstep::fuzz {
namespace {

namespace ddp = lockstep::ddp::detail;

/// The list of a file, with the checksum that fits it.
void checkpoint_list(std::string_view bytes) {
  const std::string text(bytes);
  try {
    const nlohmann::json list = ddp::read_checkpoint_list(text, std::to_string(protocol::checksum(text)));
    if (ddp::problem_of_checkpoint_list(list, "rank0.pt", 2).empty())
      check(list["names"].is_object() && list["generators"].is_object() && list["id"].is_number_unsigned(),
            "a list that is good has names, generators and an id");
  } catch (const nlohmann::json::exception&) {
  } catch (const std::runtime_error&) {
  }
}

/// A plain value, which variables of different types take.
void plain_value(std::string_view bytes) {
  nlohmann::json value;
  try {
    value = ddp::read_plain_value(std::string(bytes));
  } catch (const nlohmann::json::exception&) {
    return;
  }
  const auto take = [&]<typename Object>(Object) {
    try {
      (void)value.get<Object>();
    } catch (const nlohmann::json::exception&) {
    }
  };
  take(int());
  take(std::string());
  take(std::map<std::string, std::vector<double>>());
  take(std::vector<std::pair<int, bool>>());
}

const AddTarget kCheckpointList("checkpoint_list", checkpoint_list), kPlainValue("plain_value", plain_value);

}  // namespace
}  // namespace lockstep::fuzz
