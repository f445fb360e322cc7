#include "protocol/launchers.h"

#include <charconv>

namespace lockstep::protocol {
namespace {

std::optional<int> number(const std::string& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value >= 0 ? std::optional(value) : std::nullopt;
}

}  // namespace

std::optional<LaunchedRank> launched_rank(const std::function<std::string(const char* name)>& variable) {
  for (const Launcher& each : kLaunchers) {
    const auto rank = number(variable(each.rank)), world_size = number(variable(each.world_size));
    if (!rank || !world_size || *rank >= *world_size) continue;
    return LaunchedRank{.launcher = &each,
                        .rank = *rank,
                        .world_size = *world_size,
                        .local_rank = number(variable(each.local_rank)),
                        .local_world_size = number(variable(each.local_world_size)).value_or(0)};
  }
  return std::nullopt;
}

}  // namespace lockstep::protocol
