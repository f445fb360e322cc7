#include "protocol/launchers.h"

#include "protocol/whole_number.h"

namespace lockstep::protocol {
namespace {

std::optional<int> number(const std::string& text) { return whole_number<int>(text, 0); }

}  // namespace

std::optional<LaunchedRank> rank_by(const Launcher& launcher,
                                    const std::function<std::string(const char* name)>& variable) {
  const auto rank = number(variable(launcher.rank)), world_size = number(variable(launcher.world_size));
  if (!rank || !world_size || *rank >= *world_size) return std::nullopt;
  return LaunchedRank{.launcher = &launcher,
                      .rank = *rank,
                      .world_size = *world_size,
                      .local_rank = number(variable(launcher.local_rank)),
                      .local_world_size = number(variable(launcher.local_world_size)).value_or(0)};
}

std::optional<LaunchedRank> launched_rank(const std::function<std::string(const char* name)>& variable) {
  for (const Launcher& each : kLaunchers)
    if (const auto rank = rank_by(each, variable)) return rank;
  return std::nullopt;
}

}  // namespace lockstep::protocol
