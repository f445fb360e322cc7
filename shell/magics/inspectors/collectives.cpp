// %collectives: the last collectives of each rank, side by side.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <compare>
#include <map>

#include "shell/magics/inspectors/job_magic.h"
#include "shell/session/session_core.h"
#include "shell/session/timing.h"
#include "shell/text/table.h"

namespace lockstep::shell {
namespace {

using protocol::question::Collective;

bool is_sent(const Collective& record) { return record.op.starts_with("send"); }

/// Returns "1", or "any" where a recv takes a message of any rank.
std::string peer_of(const Collective& record) { return record.root ? std::to_string(*record.root) : "any"; }

/// Returns "waiting for its stream" for "waiting_for_stream"; one word is as it is.
std::string stage_text(const std::string& stage) {
  return stage == "waiting_for_stream" ? "waiting for its stream" : stage;
}

/// Returns "all_reduce [256, 64] float32", and what became of it where that is not "done".
std::string cell_text(const Collective& record) {
  std::string text = record.op;
  if (!record.dtype.empty()) text += fmt::format(" [{}] {}", fmt::join(record.shape, ", "), record.dtype);
  if (record.tag) {
    text += (is_sent(record) ? " to " : " from ") + peer_of(record);
    if (*record.tag != 0) text += " tag " + std::to_string(*record.tag);
  }
  if (record.state == "done") return text + "  " + duration_text(record.took_us / 1000);
  return text + "  " + stage_text(record.stage.value_or(record.state)) + " since " +
         duration_text(record.entered_s_ago * 1000);
}

/// Identifies what ranks enter together: a collective of a group, by its number, or a message, by its ranks, its tag
/// and its number among such.
struct Key {
  std::string group, message;
  int64_t number = 0;
  auto operator<=>(const Key&) const = default;
};
Key key_of(int rank, const Collective& record) {
  if (!record.tag) return {record.group, "", record.seq};
  const std::string own = std::to_string(rank), peer = peer_of(record);
  return {record.group, fmt::format("{} {}", is_sent(record) ? own + " " + peer : peer + " " + own, *record.tag),
          record.tag_seq.value_or(0)};
}

using Numbered = std::map<Key, std::map<int, Collective>>;

/// Returns the last `count` over all groups, in the order in which they were entered.
std::vector<Numbered::value_type> newest(const Numbered& by_number, size_t count) {
  struct Row {
    double age;  // seconds since the first rank entered it, or a later one of its group
    const Numbered::value_type* records;
  };
  std::vector<Row> rows;
  for (auto each = by_number.rbegin(); each != by_number.rend(); ++each) {
    // A rank with more collectives than are asked for leaves this one out, though it was in it.
    const bool same_group = !rows.empty() && rows.back().records->first.group == each->first.group &&
                            rows.back().records->first.message == each->first.message;
    double age = same_group ? rows.back().age : 0;
    for (const auto& [rank, record] : each->second) age = std::max(age, record.entered_s_ago);
    rows.push_back({age, &*each});
  }
  std::reverse(rows.begin(), rows.end());
  std::stable_sort(rows.begin(), rows.end(), [](const Row& one, const Row& other) { return one.age > other.age; });
  std::vector<Numbered::value_type> result;
  for (size_t i = rows.size() > count ? rows.size() - count : 0; i < rows.size(); ++i)
    result.push_back(*rows[i].records);
  return result;
}

CellOutcome collectives(MagicCall& call) {
  const auto spec = call.given.word();
  const int64_t count = call.given.count("-n").value_or(10);
  const RankSet ranks = spec ? call.session.parse_ranks(*spec) : call.session.live_ranks();
  const auto answers = call.session.query(ranks, protocol::question::Collectives{count});

  // There is a row for each collective, the same on every rank if all is well, and for each message.
  Numbered by_number;
  for (const auto& [rank, answer] : answers)
    for (const Collective& record : answer.collectives) by_number[key_of(rank, record)][rank] = record;
  const std::string errors = protocol::errors_in(answers);
  if (by_number.empty()) {
    call.session.message(errors.empty() ? "no collectives yet" : errors,
                         {{"ranks", ranks}, {"collectives", nlohmann::json::array()}});
    return {};
  }
  std::vector<std::vector<std::string>> rows = {{"group", "#", "where"}};
  for (const auto& [rank, answer] : answers) rows[0].push_back("rank " + std::to_string(rank));
  nlohmann::json data = nlohmann::json::array();
  for (const auto& [key, records] : newest(by_number, static_cast<size_t>(count))) {
    std::vector<std::string> row = {key.group, std::to_string(key.number), records.begin()->second.where.value_or("-")};
    nlohmann::json by_rank = nlohmann::json::object();
    for (const auto& [rank, answer] : answers) {
      const auto record = records.find(rank);
      row.push_back(record == records.end() ? "-" : cell_text(record->second));
      if (record != records.end()) by_rank[std::to_string(rank)] = record->second;
    }
    rows.push_back(std::move(row));
    data.push_back({{"group", key.group}, {"seq", key.number}, {"ranks", std::move(by_rank)}});
  }
  call.session.message(table(rows) + errors, {{"ranks", ranks}, {"collectives", std::move(data)}});
  return {};
}

const RegisterMagic kCollectives({.name = "collectives",
                                  .summary = "the last collectives of each rank, side by side",
                                  .help = "Answered while a "
                                          "cell runs, too; - where a rank has not entered it.",
                                  .takes = {{"[SPEC]", "these ranks only"},
                                            {"-n,--last K", "so many collectives (10)"}},
                                  .line = collectives,
                                  .at_any_time = true,
                                  .job_line = collectives_of_job});

}  // namespace
}  // namespace lockstep::shell
