// Finds which items of a subject differ between ranks, on which ranks, and by how much: the basis of verify's findings.
// Every rank gets the same result.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "inspectors/exchange/exchange.h"
#include "inspectors/findings/about.h"
#include "inspectors/fingerprint/fingerprint.h"
#include "inspectors/subject/compare.h"
#include "inspectors/subject/subject.h"

namespace lockstep::inspect {

/// An item that differs between ranks. Lists are by rank index.
struct ItemDifference {
  size_t item = 0;  // its index
  RankSet faulty;  // ranks that differ from the reference; all without one
  RankSet reference;  // a majority; empty without one
  int source = 0;  // the rank with which the others are compared: of the reference, or the lowest
  bool complete = true;  // every differing chunk was compared
  std::vector<Difference> difference;  // from `source`
  std::vector<double> norm;
  std::vector<int64_t> not_finite;  // the numbers of NaN and Inf
  std::vector<std::string> value;  // only if the item is no tensor
  std::vector<Hash> hash;
  std::vector<uint64_t> seed;  // only of generators
  std::vector<uint64_t> elements_hash;  // does not depend on the order of elements

  /// Whether only the signs of zeros or the bits of NaN differ.
  bool representation_only() const;
};

struct Comparison {
  Tolerance tolerance;
  int64_t detail_bytes = 0;
};

/// `hashes` are of this rank's items. Collective over `exchange`'s ranks, whose subjects have the same structure.
std::vector<ItemDifference> find_differences(Exchange& exchange, const Subject& subject,
                                             const std::vector<Hash>& hashes, const Comparison& comparison);

/// Fills in the lists for items that are known to differ. Collective.
void look_closer(Exchange& exchange, const Subject& subject, const std::vector<Hash>& hashes,
                 const Comparison& comparison, std::vector<ItemDifference>& differences);

/// Divides `ranks` into sets that agree with one another in all of `items`, bit by bit; ordered by their lowest ranks.
/// Empty if no two ranks agree, or if that is not known.
std::vector<RankSet> classes_of(const std::vector<const ItemDifference*>& items, const RankSet& ranks);
/// Returns "ranks 0-1 agree, ranks 2-3 agree, rank 4 agrees with none".
std::string classes_text(const std::vector<RankSet>& classes, const About& about);
/// Returns each value with its ranks: "0.1 on ranks 0-1, 0.01 on rank 2".
std::string values_text(const std::vector<std::string>& values, const About& about);

/// Sets faulty ranks, reference and source. `votes` are equal if ranks agree.
void vote(const RankSet& ranks, const std::vector<Hash>& votes, ItemDifference& difference);

}  // namespace lockstep::inspect
