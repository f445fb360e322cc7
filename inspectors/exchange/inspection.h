// One call of an inspector that asks every rank for something: who takes part, what each has to say, who is missing or called
// something else, and who speaks for all in the end.
//
//   Round round({.inspector = "data", .object = name, .ranks = options.ranks(), .deadline = options.deadline()});
//   if (!round.takes_part()) return {};
//   if (const auto all = round.open(mine)) { … }         // by place among round.ranks()
//   return round.close(report, publish);
#pragma once
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "inspectors/exchange/exchange.h"
#include "inspectors/exchange/report.h"
#include "inspectors/exchange/exchange.h"
#include "inspectors/findings/text.h"

namespace lockstep::inspect {

struct RoundOptions {
  std::string inspector;  // "data"
  std::string object;  // what findings are about; ranks that name different ones end in a finding
  std::optional<RankSet> ranks;  // unset: all that are alive
  std::chrono::milliseconds deadline = std::chrono::seconds(10);
};

class Round {
 public:
  /// Local. Throws dist::ArgumentError for ranks that are not there.
  explicit Round(RoundOptions options);

  bool takes_part() const { return ranks_.contains(rank_); }
  int rank() const { return rank_; }
  const RankSet& ranks() const { return ranks_; }
  size_t place() const;
  /// Of the calling rank's place, `values[place]`, and so on for all.
  Talk& talk() { return *talk_; }

  /// The first thing that all do. Nothing where some did not come, or came for something else: then a finding says so.
  std::optional<std::vector<nlohmann::json>> open(const nlohmann::json& value);

  /// Numbers of each rank, by place. Lists may differ in length. Collective.
  std::vector<std::vector<int64_t>> gather(const std::vector<int64_t>& mine);
  /// Text of each rank, by place, of any length: over the ranks' own connections, not the store. Collective.
  std::vector<std::string> gather_text(const std::string& mine);
  /// All have come here: within some tens of microseconds of one another on one machine. Collective.
  void align();

  Finding finding(Severity severity, std::string verdict) const;
  void add(Finding finding) { findings_.push_back(std::move(finding)); }
  bool has_fault() const;
  /// Findings into `report`; handed to the session by the rank that speaks for all.
  void close(Report& report, bool publish_them = true);

 private:
  const RoundOptions options_;
  int rank_ = 0;
  RankSet ranks_;
  RankSet missing_;
  std::unique_ptr<LocalRound> alone_;
  std::unique_ptr<Talk> talk_;
  std::vector<Finding> findings_;
};

/// Whether findings are shown by a session, so that what is printed of a report leaves them out.
bool session_shows_findings();

}  // namespace lockstep::inspect
