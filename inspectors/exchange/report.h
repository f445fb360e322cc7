// What the inspectors take and return: the options that all of them have, and a report with findings, which are the
// same on every rank and go to a sink as well.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "protocol/finding.h"
#include "protocol/rank_set.h"

/// A row of a table of inspectors/options/ as a field, with its setter.
#define LOCKSTEP_OPTION_FIELD(type, name, initial, value, range, help) TORCH_ARG(type, name) = initial;

namespace lockstep::inspect {

/// The options of every inspector that compares ranks. The options of an inspector extend these and chain in any order:
///
///   struct DataOptions : InspectOptionsOf<DataOptions> { … };
///   inspect::data(sampler, inspect::DataOptions().name("train").deadline(std::chrono::seconds(30)).size(50'000));
///
/// Those that magics and Python have, too, are in inspectors/options/.
class InspectOptions {
 public:
  /// The name of the inspected object in findings. Empty by default: findings use its kind ("module", "optimizer") or
  /// none. If ranks give different names, there is a finding and no comparison. Costs nothing.
  const std::string& name() const { return name_; }
  /// The ranks that take part; each of them has to make the call, and the others return at once with an empty report.
  /// Unset by default: all live ranks, or those of the process group that the inspector looks at. Costs grow with their
  /// number.
  const std::optional<RankSet>& ranks() const { return ranks_; }
  /// How long to wait for ranks that do not make the call, in milliseconds; 10 seconds by default. Exchanges after all
  /// ranks have made it may take two minutes or this, whichever is longer. Costs nothing if all ranks make the call.
  std::chrono::milliseconds deadline() const { return deadline_; }
  /// The training step in findings, if the object does not count its steps. Unset by default. Costs nothing.
  const std::optional<int64_t>& step() const { return step_; }
  /// Whether the lowest rank that took part also passes the findings to the sink (the session). True by default.
  bool publish() const { return publish_; }
  /// Whether a rank that calls after the deadline of the others waits for their next call, as people who repeat a call
  /// want it (true by default), or gets the finding that the others have. Costs nothing.
  bool waits_when_late() const { return waits_when_late_; }

 protected:
  std::string name_;
  std::optional<RankSet> ranks_;
  std::chrono::milliseconds deadline_ = std::chrono::seconds(10);
  std::optional<int64_t> step_;
  bool publish_ = true;
  bool waits_when_late_ = true;
};

/// The setters of the above, which return the options of the inspector.
template <typename Options>
class InspectOptionsOf : public InspectOptions {
 public:
  using InspectOptions::deadline;
  using InspectOptions::name;
  using InspectOptions::publish;
  using InspectOptions::ranks;
  using InspectOptions::step;
  using InspectOptions::waits_when_late;

  Options& name(std::string name) {
    name_ = std::move(name);
    return self();
  }
  Options& ranks(std::optional<RankSet> ranks) {
    ranks_ = std::move(ranks);
    return self();
  }
  Options& deadline(std::chrono::milliseconds deadline) {
    deadline_ = deadline;
    return self();
  }
  Options& step(std::optional<int64_t> step) {
    step_ = step;
    return self();
  }
  Options& publish(bool publish) {
    publish_ = publish;
    return self();
  }
  Options& waits_when_late(bool waits) {
    waits_when_late_ = waits;
    return self();
  }
  /// Takes ranks, deadline and step from the options of another inspector.
  Options& same_ranks_as(const InspectOptions& other) {
    ranks_ = other.ranks();
    deadline_ = other.deadline();
    step_ = other.step();
    return self();
  }

 private:
  Options& self() { return static_cast<Options&>(*this); }
};

struct Report {
  std::vector<Finding> findings;
  int64_t tensors = 0;  // that were compared
  int64_t bytes = 0;  // of memory that was compared, on this rank
  double seconds = 0;  // on this rank
  RankSet took_part;  // the ranks whose facts the findings come from; the lowest of them publishes

  /// Whether there is no fault. Notes do not count.
  bool ok() const;
  explicit operator bool() const { return ok(); }
};

/// Prints a line for each finding, and one for each tensor of it; nothing for a report without findings.
std::ostream& operator<<(std::ostream& out, const Report& report);

/// Sets the function that gets findings, besides the caller: in a session the worker passes them to the shell. Without
/// one, as in a plain program, those that are not ok are written to stderr. From any thread.
void set_finding_sink(std::function<void(const Finding&)> sink);
/// Whether a session shows findings; a printed report then leaves them out.
bool session_shows_findings();

/// Passes the findings to the sink, from the calling rank.
void publish(const Report& report);
/// Does the same if the caller is the lowest rank that took part; `choose` selects the findings (all without it).
void publish_from_reporting_rank(const Report& report, const std::function<bool(const Finding&)>& choose = {});
/// Serves as `choose`.
bool is_not_ok(const Finding& finding);

}  // namespace lockstep::inspect
