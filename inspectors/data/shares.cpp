#include "inspectors/data/shares.h"

#include <algorithm>
#include <map>

namespace lockstep::inspect {
namespace {

/// Chooses the most frequent size; of equally frequent ones the largest.
void choose_size(const std::vector<DataFacts>& facts, Shares& shares) {
  std::map<int64_t, int> votes;
  for (const DataFacts& each : facts)
    if (each.size) ++votes[*each.size];
  for (const auto& [size, count] : votes)
    if (!shares.size || count >= votes.at(*shares.size)) shares.size = size;
  shares.sizes_differ = votes.size() > 1;
}

void count_batches(const std::vector<DataFacts>& facts, const SampleOrders& orders, Shares& shares) {
  const bool listed = !orders.batches.empty();
  if (!listed && std::ranges::any_of(facts, [](const DataFacts& each) { return !each.batch_size; })) return;
  for (size_t i = 0; i < orders.samples.size(); ++i) {
    if (listed) {
      const auto& sizes = orders.batches[i];
      shares.batch_sizes.push_back(sizes.empty() ? 0 : *std::ranges::max_element(sizes));  // the last may be smaller
      shares.numbers.batches.push_back(static_cast<int64_t>(sizes.size()));
    } else {
      const int64_t size = *facts[i].batch_size;
      shares.batch_sizes.push_back(size);
      shares.numbers.batches.push_back((shares.numbers.samples[i] + size - 1) / size);
    }
  }
}

}  // namespace

Shares shares_of(const RankSet& ranks, const std::vector<DataFacts>& facts, const SampleOrders& orders) {
  Shares shares;
  DataNumbers& numbers = shares.numbers;
  for (const auto& each : orders.samples) numbers.samples.push_back(static_cast<int64_t>(each.size()));
  choose_size(facts, shares);
  count_batches(facts, orders, shares);
  for (const DataFacts& each : facts) {
    shares.batch_unit = std::max(shares.batch_unit, each.batch_size.value_or(1));
    shares.join = shares.join || each.join;
  }
  shares.shuffled = !std::ranges::all_of(orders.samples, in_sequence);
  shares.readings = read(orders, ranks, shares.size);
  const Readings& readings = shares.readings;
  numbers.distinct = readings.distinct;
  numbers.shared = static_cast<int64_t>(readings.shared.size());
  if (shares.size) numbers.omitted = readings.omitted_count;

  const int64_t world = static_cast<int64_t>(ranks.size()), count = numbers.samples[0];
  const int64_t total = shares.size.value_or(readings.distinct), share = (total + world - 1) / world;
  const int64_t share_of_batches = (share + shares.batch_unit - 1) / shares.batch_unit * shares.batch_unit;
  shares.padded = all_equal(numbers.samples) && readings.distinct == total &&
                  (count == share || count == share_of_batches);  // some samplers pad to full batches
  if (shares.padded) numbers.padding = readings.repeated_reads;
  // Drawing with replacement repeats some samples within a rank; a sampler without replacement does not.
  shares.with_replacement = !shares.padded && readings.repeats > 0;
  return shares;
}

bool in_sequence(const std::vector<int64_t>& samples) {
  size_t steps_back = 0;
  for (size_t i = 1; i < samples.size(); ++i) {
    if (samples[i] > samples[i - 1]) continue;
    if (++steps_back > 1 || i + 1 < samples.size() - samples.size() / 2) return false;
  }
  return true;
}

bool all_equal(const std::vector<int64_t>& values) {
  return std::ranges::all_of(values, [&](int64_t each) { return each == values[0]; });
}

}  // namespace lockstep::inspect
