// A finding is what an inspector finds, as data. Tables, JSON lines and displays are drawn from it, never parsed.
#pragma once
#include <cstdint>
#include <iosfwd>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "protocol/rank_set.h"
#include "protocol/status.h"
#include "protocol/verdict.h"

namespace lockstep {

/// One tensor that a finding is about, in the module's order.
struct FindingTensor {
  std::string name;
  std::string dtype;  // "float32"
  std::vector<int64_t> shape;
  std::optional<int64_t> count;  // elements that differ
  std::vector<int64_t> first;    // index of the first of them
  std::optional<double> max_abs_diff;
  std::optional<double> max_ulp;  // largest distance in units of the last place
  std::map<int, double> norms;    // by rank: Euclidean, of finite elements; none where nothing was measured
};

/// The collective that a finding is about; names as in `dist::`.
struct FindingOp {
  std::string name;  // "all_reduce"
  int64_t seq = 0;   // counted per group, from 1
  std::vector<int64_t> shape;
  std::string dtype;
  std::string group;  // "default"
};

struct Finding {
  Severity severity = Severity::note;
  std::optional<int64_t> cell;  // filled in by the worker
  std::optional<int64_t> step;
  std::string inspector;              // "verify" (docs/findings.md has the list)
  Verdict verdict = Verdict::unsupported;
  RankSet ranks;                      // those at fault
  RankSet reference_ranks;            // those that are right; empty where no majority says so
  std::optional<std::string> object;  // "net"
  std::optional<FindingKind> kind;
  std::vector<FindingTensor> tensors;
  std::optional<FindingOp> op;
  std::optional<std::string> where;  // "cell 7, line 4"
  std::string message;
  // Words at the beginning of `message` that name the rank ("on rank 1"), in a finding that a rank makes about itself
  // alone. Equal findings of other ranks are merged with it into one that names all of them.
  std::string subject;
};

/// Makes `finding.message` from `what` after the names of `finding.ranks`: "on rank 1 fc1.weight became NaN". It is for
/// a finding that a rank makes about itself alone.
void set_message_with_ranks(Finding& finding, const std::string& what);
/// Returns the message without its subject.
std::string message_without_ranks(const Finding& finding);

/// Prints "verify mismatch: net: ranks 0-1 differ", with the place where it has one, and a line for each tensor.
std::ostream& operator<<(std::ostream& out, const Finding& finding);
/// Prints "fc1.weight [256, 64] float32, 3 elements, first at [12, 4], at most 0.0012 apart".
std::ostream& operator<<(std::ostream& out, const FindingTensor& tensor);
/// Prints "all_reduce #12 of group default, [256, 64] float32".
std::ostream& operator<<(std::ostream& out, const FindingOp& op);

void to_json(nlohmann::json& json, const FindingTensor& tensor);
void from_json(const nlohmann::json& json, FindingTensor& tensor);
void to_json(nlohmann::json& json, const FindingOp& op);
void from_json(const nlohmann::json& json, FindingOp& op);
void to_json(nlohmann::json& json, const Finding& finding);
void from_json(const nlohmann::json& json, Finding& finding);

}  // namespace lockstep
