// One call of an inspector that every rank makes: who takes part, which facts each rank has, which ranks are missing or
// called something else, and which rank publishes the findings. Every inspector that asks other ranks goes through it,
// in four steps:
//
//   Inspection inspection({.inspector = "data", .object = options.name()}, options);
//   if (!inspection.takes_part()) return {};
//   const DataFacts mine = look(…);                                      // look: local
//   if (const auto facts = inspection.exchange_facts(mine))              // exchange: collective
//     inspection.add(findings(inspection.about(), *facts, …));           // judge: local, the same on every rank
//   inspection.conclude(report);                                         // publish
//
// Nothing of the program's process groups is used. What needs more rounds uses exchange() between the second and the
// third step.
#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "inspectors/exchange/exchange.h"
#include "inspectors/exchange/report.h"
#include "inspectors/findings/about.h"

namespace lockstep::inspect {

/// What the ranks call. They have to agree on inspector, object, type and variant.
struct InspectionCall {
  std::string inspector;  // "data", as findings have it
  std::string object;  // the user's name for it; may be empty
  std::string type;  // "module"; findings use it for an object without a name; empty without an object
  std::string variant;  // how the object is compared, if ranks can choose: "by broadcast"
  std::string function;  // what users call, if it is not the inspector's name: "replay"
  std::optional<RankSet> ranks;  // that take part if the options name none; unset: all live ranks
  std::optional<int64_t> step;  // of the object; unset: the options' step
  std::vector<std::string> names;  // of the participants, if they are no ranks (About::names)
  std::chrono::steady_clock::time_point start =
      std::chrono::steady_clock::now();  // what the report's seconds count from
};

class Inspection {
 public:
  /// Throws dist::ArgumentError for ranks that are not there. Local.
  Inspection(InspectionCall call, const InspectOptions& options);
  /// Does the same over an existing exchange, for threads that stand for ranks.
  Inspection(InspectionCall call, const InspectOptions& options, std::unique_ptr<Exchange> exchange);

  /// Whether the calling rank is among the ranks. If not, it must call nothing else.
  bool takes_part() const { return about_.ranks.contains(rank_); }
  int rank() const { return rank_; }
  const RankSet& ranks() const { return about_.ranks; }
  size_t rank_index() const;
  const About& about() const { return about_; }

  /// Returns the facts of all ranks, by rank index. Collective; called once, before exchange(). Returns nothing if a
  /// rank did not call within the deadline or called something else; conclude() then adds a finding about it. Facts are
  /// a struct with to_json and from_json, or json.
  template <typename Facts>
  std::optional<std::vector<Facts>> exchange_facts(const Facts& mine) {
    const auto all = exchange_json(nlohmann::json(mine));
    if (!all) return std::nullopt;
    std::vector<Facts> facts;
    for (const nlohmann::json& each : *all) facts.push_back(each.get<Facts>());
    return facts;
  }
  /// Serves further rounds, after exchange_facts() has returned facts. Collective over ranks().
  Exchange& exchange() { return *exchange_; }
  /// Continues without `ranks`; every rank derives the same ones from the facts. A rank that is left out may only call
  /// conclude().
  void leave_out(const RankSet& ranks);

  void add(Finding finding) { findings_.push_back(std::move(finding)); }
  void add(std::vector<Finding> findings);
  bool has_fault() const;
  double seconds() const;  // since the start
  /// Moves the findings into `report` and fills in its seconds and who took part. Unless the options say otherwise, the
  /// lowest rank that took part publishes the findings that `choose` picks (all without it).
  void conclude(Report& report, const std::function<bool(const Finding&)>& choose = {});

 private:
  std::optional<std::vector<nlohmann::json>> exchange_json(const nlohmann::json& mine);
  Finding missing_call(const ExchangeResult& result) const;
  Finding different_calls(const std::vector<nlohmann::json>& calls) const;

  const InspectionCall call_;
  const std::chrono::milliseconds deadline_;
  const bool publish_, waits_when_late_;
  int rank_ = 0;
  About about_;
  RankSet absent_;  // did not call, or were left out
  std::unique_ptr<Exchange> exchange_;
  std::vector<Finding> findings_;
  std::optional<Finding> failed_call_;
};

}  // namespace lockstep::inspect
