// Makes the findings of grads, from the facts of all ranks. Pure: no communication, and the same on every rank.
#pragma once
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "inspectors/findings/about.h"
#include "inspectors/grads/facts.h"
#include "inspectors/grads/grads.h"
#include "inspectors/subject/differences.h"
#include "protocol/finding.h"

namespace lockstep::inspect {

/// Describes the wrapper of the parameters, on all ranks together.
struct WrapperFacts {
  bool present = false;
  bool skips_unused = false;  // find_unused_parameters or static_graph: a rank may leave parameters out
  bool last_was_local = false;  // the last forward ran under no_sync, on some rank
  bool uneven = false;  // some ranks are out of data: the mean may be over all ranks, or over those that train
};

/// Whether `value` is `wanted` within the relative `tolerance`.
inline bool is_near(double value, double wanted, double tolerance) { return std::abs(value / wanted - 1) <= tolerance; }

class GradsFindings {
 public:
  /// `parameters` are those that `facts` describe, in their order. `facts` are by rank index.
  GradsFindings(const About& about, const GradientSubject& subject, const GradsOptions& options,
                const WrapperFacts& wrapper, std::vector<GradientOwner> parameters, std::vector<RankFacts> facts);

  /// Adds findings about the structure, as findings of grads.
  void add(std::vector<Finding> findings);
  /// `compared` has the gradients that all ranks have, `items` those that differ between ranks.
  void differences(const Subject& compared, const std::vector<ItemDifference>& items);

  /// Checks gradients after the reduction.
  void reduced();
  /// Checks gradients before the reduction.
  void local();

  /// Returns all findings; an ok if there is no other.
  std::vector<Finding> take(const Report& report);

 private:
  struct ParametersByRanks;  // parameters_by_ranks.h
  /// Returns a gradient now, or before the reduction.
  const GradFacts& of(size_t rank, size_t parameter, bool before) const;
  bool all_watched() const;
  bool compares_before() const;
  bool stepped() const;
  bool changed() const;
  Finding finding(Severity severity, Verdict verdict, FindingKind kind, const RankSet& ranks) const;
  FindingTensor tensor(size_t parameter) const;
  RankSet ranks_where(const std::vector<bool>& by_rank_index) const;
  /// Returns "2 of 4 parameters". `what` is in the singular.
  std::string how_many(size_t count, const char* what) const;
  std::string in_how_many(size_t count) const;  // gradients

  /// Returns "fc1.weight, fc1.bias and 3 more".
  std::string names_of(const std::vector<size_t>& parameters) const;

  /// A gradient after the reduction, divided by the mean over ranks of those before it.
  struct Factor {
    double value = 1;
    double tolerance = 0;  // relative uncertainty of `value`
    bool multiple = true;  // false: the gradient is no multiple of the mean, and `value` is the nearest factor
  };
  std::optional<Factor> factor_of_mean(size_t parameter) const;

  /// Returns the factor with which each rank's gradients are in the reduced ones: 1 for all of them in the mean. Empty
  /// if no such factors explain what was reduced.
  std::vector<double> factors_of_ranks() const;

  bool none_at_all(bool before);
  void presence(bool before);
  void not_finite(bool before);
  void scale();
  void scope();
  void stale();
  /// Returns the ranks whose backward added to gradients that an optimizer had used.
  RankSet added_to_used();
  /// Reports parameters whose gradient is exactly zero on every rank. Returns whether these are all parameters.
  bool zero_everywhere(bool before);
  void micro_batches();
  /// Reports ranks whose gradients are equal bit by bit. Returns whether these are all ranks.
  bool same_batch(bool before);
  /// Reports the factors of ranks, by rank index.
  void scaled_before(const std::vector<double>& factors);
  /// Returns code that uses an older object of the subject's name, as the end of a sentence; empty without any.
  std::string older_objects() const;
  void zeros();
  void outliers();
  /// Returns the ranks of `rank_indices` whose norm is an outlier; `norms` are of these ranks.
  RankSet outlier_ranks(const std::vector<double>& norms, const std::vector<size_t>& rank_indices) const;
  /// Returns "1.2 on rank 0, 3.4 on rank 1".
  std::string norms_text(const std::vector<double>& norms, const std::vector<size_t>& rank_indices) const;
  /// Returns "another loss scale?" if all gradients of the outlier differ by about the same factor, or nothing.
  std::string common_factor(const RankSet& outliers, const std::vector<size_t>& rank_indices, double middle) const;
  /// Returns the parameters that make up most of the difference between `outliers` and the other ranks, largest first.
  /// Empty if these are more than half of all parameters.
  std::vector<size_t> main_parameters(const RankSet& outliers, const std::vector<size_t>& rank_indices) const;
  std::string cause(const Subject& compared, const std::vector<const ItemDifference*>& items) const;
  /// Returns "exactly 2 times rank 0's" if gradients of ranks are multiples of another rank's.
  std::string multiples(const Subject& compared, const std::vector<const ItemDifference*>& items) const;
  /// Whether ranks agree in classes, each with the reduced gradients of its own ranks.
  enum class SubGroups { kNone, kLikely, kProven };
  SubGroups sub_groups(const Subject& compared, const std::vector<const ItemDifference*>& items) const;
  double total_norm(size_t rank, bool before) const;

  const About& about_;
  const GradientSubject& subject_;
  const GradsOptions& options_;
  const RankSet ranks_;
  const WrapperFacts wrapper_;
  const std::vector<GradientOwner> parameters_;
  const std::vector<RankFacts> facts_;
  std::string remark_;  // added to ok
  std::vector<std::string> unchecked_;  // for "not checked" in ok
  std::vector<Finding> findings_;
};

}  // namespace lockstep::inspect
