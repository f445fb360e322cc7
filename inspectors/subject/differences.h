// Which tensors of a subject differ between ranks, who is right, and what is to be said of each: what verify's findings
// are written from. Every rank comes to the same result.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "inspectors/exchange/exchange.h"
#include "inspectors/fingerprint/fingerprint.h"
#include "inspectors/subject/compare.h"
#include "inspectors/subject/subject.h"

namespace lockstep::inspect {

/// An item that is not the same everywhere.
struct ItemDifference {
  size_t item = 0;
  RankSet faulty;  // those that differ from the reference; all where there is none
  RankSet reference;  // a majority; empty where there is none
  int source = 0;  // the rank that was compared with: of the reference, or the lowest
  bool complete = true;  // every differing chunk was looked at
  std::vector<Difference> difference;  // by place; from `source`
  std::vector<double> norm;  // by place
  std::vector<int64_t> not_finite;  // by place: NaN and Inf
  std::vector<std::string> value;  // by place; of items that are no tensors
  std::vector<Hash> hash;  // by place
  std::vector<uint64_t> seed;  // by place; of generators: what they were seeded with
  std::vector<uint64_t> elements_hash;  // by place; the same where the elements are, in whatever order

  /// Only the signs of zeros or the bits of NaN differ.
  bool representation_only() const;
};

struct Comparison {
  Tolerance tolerance;
  int64_t detail_bytes = 0;
};

/// `hashes`: this rank's, by item. Collective over `exchange`'s ranks, whose subjects have the same structure.
std::vector<ItemDifference> find_differences(Exchange& exchange, const Subject& subject,
                                             const std::vector<Hash>& hashes, const Comparison& comparison);

/// The rest of it for items that are known to differ, with votes taken already.
void look_closer(Exchange& exchange, const Subject& subject, const std::vector<Hash>& hashes,
                 const Comparison& comparison, std::vector<ItemDifference>& differences);

/// `ranks`, split into those that agree with one another in all of `items`, bit by bit; by their lowest ranks. Nothing
/// where no two agree, or where that is not known.
std::vector<RankSet> classes_of(const std::vector<const ItemDifference*>& items, const RankSet& ranks);
/// "ranks 0-1 agree, ranks 2-3 agree, rank 4 agrees with none".
std::string classes_text(const std::vector<RankSet>& classes);
/// Each value with the ranks that have it: "0.1 on ranks 0-1, 0.01 on rank 2".
std::string values_text(const std::vector<std::string>& values, const RankSet& ranks);

/// Splits ranks by `votes` (equal votes agree): the majority is the reference.
void vote(const RankSet& ranks, const std::vector<Hash>& votes, ItemDifference& difference);

}  // namespace lockstep::inspect
