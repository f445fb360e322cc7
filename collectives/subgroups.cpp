// Makes several groups at once, each by new_group.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "collectives/dist.h"
#include "collectives/rank_context.h"
#include "collectives/watch/arguments.h"
#include "collectives/watch/call_context.h"

namespace lockstep::dist {

namespace {
/// Checks all lists before the first group is made, so that no rank is left in the middle.
void check_lists(const char* function, const char* name, const std::vector<std::vector<int>>& lists, int size,
                 const std::string& of_what) {
  if (lists.empty()) throw ArgumentError(fmt::format("dist::{}: {} is empty", function, name));
  std::map<int, size_t> seen;
  for (size_t i = 0; i < lists.size(); ++i) {
    if (lists[i].empty()) throw ArgumentError(fmt::format("dist::{}: {} is empty", function, element(name, i)));
    for (const int rank : lists[i]) {
      if (rank < 0 || rank >= size)
        throw ArgumentError(fmt::format("dist::{}: {} has rank {}; ranks of {} go from 0 to {}", function,
                                        element(name, i), rank, of_what, size - 1));
      const auto [before, fresh] = seen.emplace(rank, i);
      if (!fresh)
        throw ArgumentError(fmt::format("dist::{}: rank {} is in {} and in {}; a rank is in one of the groups only",
                                        function, rank, element(name, before->second), element(name, i)));
    }
  }
}

/// Returns this rank's group, and all of them.
std::pair<Group, std::vector<Group>> make_groups(const std::vector<std::vector<int>>& lists,
                                                 std::chrono::milliseconds timeout, const std::string& backend,
                                                 uint64_t site) {
  const auto context = require_context("new_group");
  std::pair<Group, std::vector<Group>> result;
  for (const std::vector<int>& ranks : lists) {
    result.second.push_back(context->new_group(ranks, timeout, backend, site));
    if (std::find(ranks.begin(), ranks.end(), get_rank()) != ranks.end()) result.first = result.second.back();
  }
  if (!result.first) result.first = result.second.front();  // this rank is outside of it, as of all others
  return result;
}
}  // namespace

std::pair<Group, std::vector<Group>> new_subgroups(int group_size, const Group& group,
                                                   std::chrono::milliseconds timeout, const std::string& backend) {
  const auto site = reinterpret_cast<uint64_t>(__builtin_return_address(0));
  const std::vector<int> ranks = get_process_group_ranks(group);
  const int size = static_cast<int>(ranks.size());
  if (group_size < 1 || size % group_size != 0)
    throw ArgumentError(
        fmt::format("dist::new_subgroups: group_size = {}, but group {} has {} ranks, which that does "
                    "not divide. Give a divisor, or list the ranks: new_subgroups_by_enumeration",
                    group_size, get_group_name(group), size));
  check_limit("new_subgroups", "timeout", timeout);
  std::vector<std::vector<int>> lists;
  for (int first = 0; first < size; first += group_size)
    lists.emplace_back(ranks.begin() + first, ranks.begin() + first + group_size);
  return make_groups(lists, timeout, backend, site);
}

std::pair<Group, std::vector<Group>> new_subgroups_by_enumeration(
    const std::vector<std::vector<int>>& ranks_per_subgroup_list, std::chrono::milliseconds timeout,
    const std::string& backend) {
  const auto site = reinterpret_cast<uint64_t>(__builtin_return_address(0));
  check_lists("new_subgroups_by_enumeration", "ranks_per_subgroup_list", ranks_per_subgroup_list, get_world_size(),
              "the default group");
  check_limit("new_subgroups_by_enumeration", "timeout", timeout);
  return make_groups(ranks_per_subgroup_list, timeout, backend, site);
}

Group split_group(const Group& parent, const std::vector<std::vector<int>>& split_ranks,
                  std::chrono::milliseconds timeout) {
  const auto site = reinterpret_cast<uint64_t>(__builtin_return_address(0));
  const auto identity = require_context("split_group")->find(parent).group->identity();
  check_lists("split_group", "split_ranks", split_ranks, static_cast<int>(identity.ranks.size()),
              "group " + identity.name);
  check_limit("split_group", "timeout", timeout);
  const std::vector<int> ranks = get_process_group_ranks(parent);
  std::vector<std::vector<int>> lists = split_ranks;
  for (std::vector<int>& list : lists)
    for (int& rank : list) rank = ranks[static_cast<size_t>(rank)];
  return make_groups(lists, timeout, identity.backend.str(), site).first;
}

}  // namespace lockstep::dist
