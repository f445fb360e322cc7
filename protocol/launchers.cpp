#include "protocol/launchers.h"

#include "protocol/whole_number.h"

namespace lockstep::protocol {
namespace {

std::optional<int> number(const std::string& text) { return whole_number<int>(text, 0); }

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
