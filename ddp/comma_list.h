// Lists names in a message: "fc1.weight, fc1.bias".
#pragma once
#include <string>

namespace lockstep::ddp::detail {

template <class Names>
std::string comma_list(const Names& names) {
  std::string text;
  for (const auto& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

}  // namespace lockstep::ddp::detail
