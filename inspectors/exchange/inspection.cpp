#include "inspectors/exchange/inspection.h"

#include <fmt/format.h>

#include <algorithm>

#include "collectives/watch/spelling.h"
#include "inspectors/exchange/participants.h"
#include "protocol/dist_error.h"

namespace lockstep::inspect {
namespace {

using nlohmann::json;

/// Ranks have to agree on these fields.
constexpr const char* kCallFields[] = {"inspector", "object", "type", "variant"};

bool all_agree(const std::vector<json>& calls, const char* field) {
  return std::ranges::all_of(calls, [&](const json& each) { return each.at(field) == calls[0].at(field); });
}

std::string name_of_function(const InspectionCall& call) {
  return inspect_name(call.function.empty() ? call.inspector : call.function);
}

/// A rank alone is equal to itself: an answer that a session of several ranks did not ask for.
void check_not_alone(const InspectionCall& call) {
  if (const std::optional<int> others = ranks_out_of_reach())
    throw dist::Error(
        fmt::format("{}: this rank is in no group with the {} other{} of the session, since "
                    "dist::destroy_process_group() was called; "
                    "dist::init_process_group(), on all ranks, makes their group again",
                    name_of_function(call), *others, *others == 1 ? "" : "s"));
}

RankSet participants(const InspectionCall& call, const InspectOptions& options) {
  check_not_alone(call);
  const RankSet alive = live_ranks();
  const RankSet ranks = options.ranks() ? *options.ranks() : call.ranks.value_or(alive);
  const RankSet unknown = ranks - alive;
  if (!unknown.empty())
    throw dist::ArgumentError(
        fmt::format("{}: there is no rank {}; ranks are {}", name_of_function(call), unknown.str(), alive.str()));
  return ranks;
}

About about_of(const InspectionCall& call, const InspectOptions& options, RankSet ranks) {
  return {.inspector = call.inspector,
          .object = call.object.empty() ? call.type : call.object,
          .step = call.step ? call.step : options.step(),
          .ranks = std::move(ranks),
          .names = call.names};
}

}  // namespace

Inspection::Inspection(InspectionCall call, const InspectOptions& options)
    : call_(std::move(call)),
      deadline_(options.deadline()),
      publish_(options.publish()),
      waits_when_late_(options.waits_when_late()),
      rank_(own_rank()),
      about_(about_of(call_, options, participants(call_, options))) {
  if (takes_part()) exchange_ = make_exchange(ranks(), deadline_);
}

Inspection::Inspection(InspectionCall call, const InspectOptions& options, std::unique_ptr<Exchange> exchange)
    : call_(std::move(call)),
      deadline_(options.deadline()),
      publish_(options.publish()),
      waits_when_late_(options.waits_when_late()),
      rank_(exchange->rank()),
      about_(about_of(call_, options, exchange->ranks())),
      exchange_(std::move(exchange)) {}

size_t Inspection::rank_index() const { return rank_index_of(ranks(), rank_); }

std::optional<std::vector<json>> Inspection::exchange_json(const json& mine) {
  const ExchangeResult result = exchange_->try_gather(json::to_cbor({{"inspector", call_.inspector},
                                                                     {"object", call_.object},
                                                                     {"type", call_.type},
                                                                     {"variant", call_.variant},
                                                                     {"facts", mine}}),
                                                      waits_when_late_);
  if (!result.missing.empty()) {
    absent_ = result.missing;
    failed_call_ = missing_call(result);
    return std::nullopt;
  }
  std::vector<json> calls;
  for (const Bytes& each : result.values) calls.push_back(json::from_cbor(each));
  if (!std::ranges::all_of(kCallFields, [&](const char* field) { return all_agree(calls, field); })) {
    failed_call_ = different_calls(calls);
    return std::nullopt;
  }
  std::vector<json> facts;
  for (json& each : calls) facts.push_back(std::move(each["facts"]));
  return facts;
}

Finding Inspection::missing_call(const ExchangeResult& result) const {
  const RankSet &missing = result.missing, there = ranks() - missing;
  Finding found = about_.finding(Severity::fault, Verdict::missing, FindingKind::call);
  found.ranks = missing;
  found.reference_ranks = there;
  const std::string how = result.early ? fmt::format(", and can't any more: {} left the cell or died",
                                                     missing.size() == 1 ? "it has" : "they have")
                                       : fmt::format(" within {} s", static_cast<double>(deadline_.count()) / 1000.0);
  found.message = fmt::format("{} did not call {}{}; {} did. Every rank has to call it, {}", missing.words(),
                              call_.function.empty() ? call_.inspector : call_.function, how, there.words(),
                              call_.type.empty() ? "for the same thing" : "with the same object");
  return found;
}

Finding Inspection::different_calls(const std::vector<json>& calls) const {
  const bool one_inspector = all_agree(calls, "inspector") && !call_.type.empty();
  const bool variants_matter = one_inspector && !all_agree(calls, "variant");
  std::string text;
  for (size_t i = 0; i < calls.size(); ++i) {
    const std::string inspector = calls[i].at("inspector"), name = calls[i].at("object"), type = calls[i].at("type");
    const std::string variant = variants_matter ? calls[i].at("variant").get<std::string>() : "";
    text += fmt::format("{}rank {} for ", text.empty() ? "" : ", ", about_.rank_at(i));
    text += one_inspector ? fmt::format("{}a {}", name.empty() ? "" : "`" + name + "`, ", type)
                          : inspector + (name.empty() ? "" : " of `" + name + "`");
    if (!variant.empty()) text += " " + variant;
  }
  Finding found = about_.finding(Severity::fault, Verdict::order_mismatch, FindingKind::call);
  found.message = fmt::format("ranks called {} for different things at the same time: {}",
                              one_inspector ? call_.inspector : "inspectors", text);
  return found;
}

void Inspection::leave_out(const RankSet& ranks) {
  absent_ = absent_ | ranks;
  about_.ranks = about_.ranks - ranks;
  exchange_ = takes_part() ? make_exchange(about_.ranks, deadline_) : nullptr;
}

void Inspection::add(std::vector<Finding> findings) {
  for (Finding& each : findings) add(std::move(each));
}

bool Inspection::has_fault() const { return std::ranges::any_of(findings_, is_fault); }

double Inspection::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - call_.start).count();
}

void Inspection::conclude(Report& report, const std::function<bool(const Finding&)>& choose) {
  if (failed_call_) findings_.push_back(*std::move(failed_call_));
  report.findings = std::move(findings_);
  report.took_part = ranks() - absent_;
  report.seconds = seconds();
  if (publish_) publish_from_reporting_rank(report, choose);
}

}  // namespace lockstep::inspect
