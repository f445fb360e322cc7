#include "ddp/helpers.h"

#include <string>

#include "collectives/dist.h"
#include "collectives/log/meetings.h"
#include "protocol/error.h"

namespace lockstep::ddp {
namespace {

size_t ranks_of_default_group() { return dist::is_initialized() ? static_cast<size_t>(dist::get_world_size()) : 1; }
size_t rank_in_default_group() { return dist::is_initialized() ? static_cast<size_t>(dist::get_rank()) : 0; }

}  // namespace

bool is_main_rank() { return rank_in_default_group() == 0; }

int64_t accumulation_steps(int64_t global_batch, int64_t micro_batch, std::optional<int64_t> ranks) {
  const int64_t sharing = ranks.value_or(static_cast<int64_t>(ranks_of_default_group()));
  if (global_batch < 1 || micro_batch < 1 || sharing < 1) {
    throw ArgumentError("accumulation_steps takes positive numbers: global batch " + std::to_string(global_batch) +
                        ", micro batch " + std::to_string(micro_batch) + ", ranks " + std::to_string(sharing));
  }
  const int64_t at_once = micro_batch * sharing;
  if (global_batch % at_once != 0) {
    const int64_t below = global_batch / at_once * at_once;
    throw ArgumentError(
        "a global batch of " + std::to_string(global_batch) + " is not a whole number of micro-steps of " +
        std::to_string(micro_batch) + " on each of " + std::to_string(sharing) + " ranks: change the global batch to " +
        (below > 0 ? std::to_string(below) + " or " : "") + std::to_string(below + at_once) +
        (global_batch % sharing == 0 ? ", or the micro batch to a divisor of " + std::to_string(global_batch / sharing)
                                     : ", since the ranks do not divide it"));
  }
  return global_batch / at_once;
}

torch::data::samplers::DistributedRandomSampler random_sampler(size_t size, bool allow_duplicates) {
  return torch::data::samplers::DistributedRandomSampler(size, ranks_of_default_group(), rank_in_default_group(),
                                                         allow_duplicates);
}

torch::data::samplers::DistributedSequentialSampler sequential_sampler(size_t size, bool allow_duplicates) {
  return torch::data::samplers::DistributedSequentialSampler(size, ranks_of_default_group(), rank_in_default_group(),
                                                             allow_duplicates);
}

namespace detail {

Construction::Construction() { dist::MakesGroup::begin(); }
Construction::~Construction() { dist::MakesGroup::end(); }
bool Construction::is_alone() const { return dist::is_rejoining(); }

}  // namespace detail
}  // namespace lockstep::ddp
