#include "inspectors/data/shares.h"

#include <algorithm>

namespace lockstep::inspect {

Readings read(const SampleOrders& orders, const RankSet& ranks, std::optional<int64_t> size) {
  std::vector<std::pair<int64_t, size_t>> reads;
  for (size_t rank_index = 0; rank_index < orders.samples.size(); ++rank_index)
    for (const int64_t sample : orders.samples[rank_index]) reads.emplace_back(sample, rank_index);
  std::sort(reads.begin(), reads.end());
  Readings result;
  int64_t expected = 0;
  const auto omit_until = [&](int64_t sample) {
    for (; expected < sample; ++expected) {
      ++result.omitted_count;
      if (result.omitted.size() < kFirstOmitted) result.omitted.push_back(expected);
    }
  };
  for (size_t i = 0; i < reads.size();) {
    size_t end = i;
    RankSet readers;
    for (; end < reads.size() && reads[end].first == reads[i].first; ++end) {
      const int rank = ranks.ranks()[reads[end].second];
      if (end > i && reads[end].second == reads[end - 1].second) {
        ++result.repeats;
        result.repeaters.insert(rank);
      }
      if (end == i || reads[end].second != reads[end - 1].second) readers.insert(rank);
    }
    const int64_t sample = reads[i].first;
    ++result.distinct;
    result.repeated_reads += static_cast<int64_t>(end - i) - 1;
    if (readers.size() > 1) {
      result.shared.push_back(sample);
      for (const int rank : readers) result.sharers.insert(rank);
    }
    if (size && (sample < 0 || sample >= *size)) {
      result.outside.push_back(sample);
      for (const int rank : readers) result.outsiders.insert(rank);
    } else if (size) {
      ++result.in_range;
      omit_until(sample);
      expected = sample + 1;
    }
    i = end;
  }
  if (size) omit_until(*size);
  return result;
}

std::vector<RankSet> same_order(const SampleOrders& orders, const RankSet& ranks) {
  std::vector<RankSet> result;
  std::vector<bool> seen(orders.samples.size());
  for (size_t i = 0; i < orders.samples.size(); ++i) {
    if (seen[i] || orders.samples[i].empty()) continue;
    RankSet alike{ranks.ranks()[i]};
    for (size_t j = i + 1; j < orders.samples.size(); ++j) {
      if (orders.samples[j] != orders.samples[i]) continue;
      seen[j] = true;
      alike.insert(ranks.ranks()[j]);
    }
    if (alike.size() > 1) result.push_back(alike);
  }
  return result;
}

}  // namespace lockstep::inspect
