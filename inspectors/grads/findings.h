// grads' findings, from the facts of all ranks. Every rank has the same. Pure: no communication.
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

/// What is known of the ranks' wrappers.
struct WrapperFacts {
  bool there = false;
  bool skips_unused = false;  // find_unused_parameters or static_graph: a rank may leave parameters out
  bool last_was_local = false;  // the last forward ran under no_sync, on some rank
  bool uneven =
      false;  // ranks are out of data: the divisor of the mean may be that of all ranks, or of those that train
};

/// Whether `value` is `wanted` within the relative `tolerance`.
inline bool is_near(double value, double wanted, double tolerance) { return std::abs(value / wanted - 1) <= tolerance; }

class GradsFindings {
 public:
  /// `parameters`: those that `facts` are about, in order; `facts` by rank index.
  GradsFindings(const About& about, const GradientSubject& subject, const GradsOptions& options,
                const WrapperFacts& wrapper, std::vector<GradientOwner> parameters, std::vector<RankFacts> facts);

  /// Findings about the structure, which become findings of grads.
  void add(std::vector<Finding> findings);
  /// Of `items` of `compared`, which are gradients that all ranks have, some are not the same everywhere.
  void differences(const Subject& compared, const std::vector<ItemDifference>& items);

  /// After the reduction.
  void reduced();
  /// Before it.
  void local();

  /// All of them, and an ok where there is none other.
  std::vector<Finding> take(const Report& report);

 private:
  struct Gathered;  // parameters that one finding is about
  /// What a rank has of a parameter: now, or before the reduction.
  const GradFacts& of(size_t rank, size_t parameter, bool before) const;
  bool all_watched() const;
  bool compares_before() const;
  bool stepped() const;
  bool changed() const;
  Finding finding(Severity severity, const char* verdict, const char* kind, const RankSet& ranks) const;
  FindingTensor tensor(size_t parameter) const;
  RankSet ranks_where(const std::vector<bool>& by_rank_index) const;
  /// "2 of 4 parameters": `what` in the singular.
  std::string how_many(size_t count, const char* what) const;
  std::string in_how_many(size_t count) const;  // gradients

  /// "fc1.weight, fc1.bias and 3 more".
  std::string names_of(const std::vector<size_t>& parameters) const;

  /// How many times the mean of the ranks' own a gradient is.
  struct Factor {
    double value = 1;
    double tolerance = 0;  // relative: how exactly that is known
    bool multiple = true;  // false: it is none, and `value` is but the nearest
  };
  std::optional<Factor> factor_of_mean(size_t parameter) const;

  bool none_at_all(bool before);
  void presence(bool before);
  void not_finite(bool before);
  void scale();
  void scope();
  void stale();
  /// Ranks whose backward added to gradients that an optimizer had used.
  RankSet added_to_used();
  /// Parameters whose gradient is exactly zero on every rank; whether all are.
  bool zero_everywhere(bool before);
  void micro_batches();
  /// Code that holds another object under the subject's name, as a sentence that ends one; empty where none does.
  std::string older_objects() const;
  void zeros();
  void outliers();
  /// Most of what makes the gradients of `odd` unlike those of the others at `places`: the parameters, by how much.
  std::vector<size_t> heaviest(const RankSet& odd, const std::vector<size_t>& places) const;
  std::string cause(const Subject& compared, const std::vector<const ItemDifference*>& items) const;
  /// Where ranks have what is a multiple of another's: "exactly 2 times rank 0's on rank 1".
  std::string multiples(const Subject& compared, const std::vector<const ItemDifference*>& items) const;
  /// Whether ranks agree in classes, and what they agree in was made of what each class had.
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
  std::vector<std::string> unchecked_;  // what ok leaves open
  std::vector<Finding> findings_;
};

}  // namespace lockstep::inspect
