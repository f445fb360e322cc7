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
#include "inspectors/exchange/options.h"
#include "inspectors/exchange/report.h"
#include "inspectors/findings/about.h"

namespace lockstep::inspect {

/// What the ranks call. They have to agree on inspector, object, type and variant.
struct InspectionCall {
  std::string inspector;  // "data", as findings have it
  std::string object;  // as the user calls it; may be empty
  std::string type;  // "module"; findings name the object by it where it has no name; empty where there is no object
  std::string variant;  // how it is compared, where ranks could choose differently: "by broadcast"
  std::string function;  // as users call it, where that is not the inspector's name: "inspect::replay"
  std::optional<RankSet> ranks;  // that take part where the options name none; unset: all that are alive
  std::optional<int64_t> step;  // of the object; unset: the options' step
  std::chrono::steady_clock::time_point start =
      std::chrono::steady_clock::now();  // what the report's seconds count from
};

class Inspection {
 public:
  /// Local. Throws dist::ArgumentError for ranks that are not there.
  Inspection(InspectionCall call, const InspectOptions& options);
  /// The same over an exchange that is there already: among threads that stand for ranks.
  Inspection(InspectionCall call, const InspectOptions& options, std::unique_ptr<Exchange> exchange);

  /// Whether the calling rank is among the ranks. Where not, it must call nothing else.
  bool takes_part() const { return about_.ranks.contains(rank_); }
  int rank() const { return rank_; }
  const RankSet& ranks() const { return about_.ranks; }
  size_t rank_index() const;
  const About& about() const { return about_; }

  /// Collective, first and once: the facts of all ranks, by rank index. Nothing where a rank did not come within the
  /// deadline or came for something else; conclude() then adds a finding that says so. Facts are a struct with to_json
  /// and from_json, or json.
  template <typename Facts>
  std::optional<std::vector<Facts>> exchange_facts(const Facts& mine) {
    const auto all = exchange_json(nlohmann::json(mine));
    if (!all) return std::nullopt;
    std::vector<Facts> facts;
    for (const nlohmann::json& each : *all) facts.push_back(each.get<Facts>());
    return facts;
  }
  /// Further rounds, after exchange_facts() has returned facts. Collective over ranks().
  Exchange& exchange() { return *exchange_; }
  /// The inspection goes on without `ranks`, which every rank has found out alike from the facts. One of them may only
  /// conclude.
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
  const bool publish_;
  int rank_ = 0;
  About about_;
  RankSet absent_;  // did not come, or were left out
  std::unique_ptr<Exchange> exchange_;
  std::vector<Finding> findings_;
  std::optional<Finding> failed_call_;
};

}  // namespace lockstep::inspect
