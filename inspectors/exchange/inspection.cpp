#include "inspectors/exchange/inspection.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "collectives/rank_context.h"
#include "inspectors/exchange/participants.h"

namespace lockstep::inspect {

using nlohmann::json;

Round::Round(RoundOptions options) : options_(std::move(options)) {
  ranks_ = taking_part(options_.ranks, ("inspect::" + options_.inspector).c_str());
  rank_ = own_rank();
  if (!takes_part()) return;
  if (ranks_.size() == 1) {
    alone_ = std::make_unique<LocalRound>(ranks_);
    talk_ = alone_->talk(rank_);
  } else {
    talk_ = std::make_unique<ChannelTalk>(Channel::of(*dist::current_context()), rank_, ranks_, options_.deadline);
  }
}

size_t Round::place() const {
  const auto& list = ranks_.ranks();
  return static_cast<size_t>(std::find(list.begin(), list.end(), rank_) - list.begin());
}

std::optional<std::vector<json>> Round::open(const json& value) {
  // Fields as verify has them: a rank that called verify meanwhile says so, too.
  const Meeting meeting =
      talk_->meet(json::to_cbor({{"name", options_.object}, {"type", options_.inspector}, {"value", value}}));
  if (!meeting.missing.empty()) {
    missing_ = meeting.missing;
    Finding found = absent_finding(options_.inspector, options_.inspector, ranks_, meeting.missing, options_.deadline);
    if (!options_.object.empty()) found.object = options_.object;
    add(std::move(found));
    return std::nullopt;
  }
  std::vector<json> values;
  std::string calls;
  bool same = true;
  for (size_t i = 0; i < meeting.values.size(); ++i) {
    json each = json::from_cbor(meeting.values[i]);
    const std::string type = each.value("type", ""), name = each.value("name", "");
    // verify's type is that of its object.
    same = same && type == options_.inspector && name == options_.object && each.contains("value");
    calls += fmt::format("{}rank {} for {}{}", calls.empty() ? "" : ", ", ranks_.ranks()[i],
                         each.contains("value") ? type : "verify", name.empty() ? "" : " of `" + name + "`");
    values.push_back(std::move(each["value"]));
  }
  if (same) return values;
  Finding found = finding(Severity::fault, "order_mismatch");
  found.kind = "call";
  found.ranks = ranks_;
  found.message = "ranks called inspectors for different things at the same time: " + calls;
  add(std::move(found));
  return std::nullopt;
}

std::vector<std::vector<int64_t>> Round::gather(const std::vector<int64_t>& mine) {
  std::vector<int64_t> counts;
  for (const json& each : talk_->exchange_json(mine.size())) counts.push_back(each.get<int64_t>());
  const int64_t longest = *std::max_element(counts.begin(), counts.end());
  std::vector<std::vector<int64_t>> result(counts.size());
  if (longest == 0) return result;
  const at::Tensor padded = at::zeros({longest}, at::kLong);
  std::copy(mine.begin(), mine.end(), padded.mutable_data_ptr<int64_t>());
  const std::vector<at::Tensor> all = talk_->all_gather(padded);
  for (size_t i = 0; i < result.size(); ++i) {
    const int64_t* from = all[i].const_data_ptr<int64_t>();
    result[i].assign(from, from + counts[i]);
  }
  return result;
}

std::vector<std::string> Round::gather_text(const std::string& mine) {
  constexpr size_t kWord = sizeof(int64_t);
  std::vector<int64_t> words(1 + (mine.size() + kWord - 1) / kWord);
  words[0] = static_cast<int64_t>(mine.size());
  std::memcpy(words.data() + 1, mine.data(), mine.size());
  std::vector<std::string> result;
  for (const std::vector<int64_t>& each : gather(words))
    result.emplace_back(reinterpret_cast<const char*>(each.data() + 1), static_cast<size_t>(each[0]));
  return result;
}

void Round::align() { talk_->all_gather(at::zeros({1}, at::kLong)); }

Finding Round::finding(Severity severity, std::string verdict) const {
  Finding result;
  result.severity = severity;
  result.inspector = options_.inspector;
  result.verdict = std::move(verdict);
  result.ranks = ranks_;
  if (!options_.object.empty()) result.object = options_.object;
  return result;
}

bool Round::has_fault() const {
  return std::any_of(findings_.begin(), findings_.end(),
                     [](const Finding& each) { return each.severity == Severity::fault; });
}

void Round::close(Report& report, bool publish_them) {
  report.findings = std::move(findings_);
  if (publish_them && rank_ == (ranks_ - missing_).ranks().front()) publish(report);
}

}  // namespace lockstep::inspect
