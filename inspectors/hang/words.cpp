#include "inspectors/hang/words.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace lockstep::inspect {

std::string plural(std::string words, size_t count) {
  for (const auto& [mark, one, more] :
       {std::tuple{"{has}", "has", "have"}, std::tuple{"{wait}", "waits", "wait"}, std::tuple{"{does}", "does", "do"},
        std::tuple{"{was}", "was", "were"}, std::tuple{"{its}", "its", "their"}}) {
    const std::string name = mark;
    for (size_t at; (at = words.find(name)) != std::string::npos;)
      words.replace(at, name.size(), count == 1 ? one : more);
  }
  return words;
}

std::string said_of(const std::string& sentence, size_t count) {
  if (count == 1) return sentence;
  const size_t end = std::min(sentence.find(' '), sentence.size());
  const std::string verb = sentence.substr(0, end);
  for (const auto& [one, more] :
       {std::pair{"is", "are"}, std::pair{"has", "have"}, std::pair{"does", "do"}, std::pair{"was", "were"}})
    if (verb == one) return more + sentence.substr(end);
  std::string rest = sentence.substr(end);
  if (rest.starts_with(" for its ")) rest.replace(0, std::string_view(" for its ").size(), " for their ");
  return verb.ends_with('s') ? verb.substr(0, verb.size() - 1) + rest : sentence;
}

std::string call_words(const RankWait& wait) {
  const dist::CollectiveRecord& call = wait.call;
  const bool is_counted = !call.point_to_point || call.root < 0 || call.seq > 0;
  std::string text = call.op + (is_counted ? fmt::format(" #{}", call.seq) : " (not counted)");
  if (call.point_to_point && call.root >= 0)
    text += fmt::format(" {} rank {}", dist::is_recv(call) ? "from" : "to", call.root);
  if (call.point_to_point && call.tag != 0) text += fmt::format(" with tag {}", call.tag);
  if (call.group != "default" && !call.group.empty()) text += " of " + call.group;
  return text + in_brackets(wait.where);
}

namespace {
/// Returns the stages of a collective's ranks that are in it on their devices.
std::map<dist::CollectiveStage, RankSet> stages_of(const HangPicture& picture, const dist::CollectiveRecord& call) {
  std::map<dist::CollectiveStage, RankSet> result;
  for (const RankPicture& rank : picture.ranks)
    for (const RankWait& wait : rank.waits)
      if (wait.call.on_device && wait.call.group == call.group && wait.call.seq == call.seq &&
          wait.call.point_to_point == call.point_to_point)
        result[wait.call.stage()].insert(rank.rank);
  return result;
}
}  // namespace

RankSet unreached_ranks(const HangPicture& picture, const dist::CollectiveRecord& call) {
  const auto stages = stages_of(picture, call);
  const auto found = stages.find(dist::CollectiveStage::waiting_for_stream);
  return found == stages.end() ? RankSet() : found->second;
}

std::string before_words(const std::vector<RankWait>& waits, const dist::CollectiveRecord& call) {
  const RankWait* before = nullptr;
  for (const RankWait& wait : waits)
    if (wait.call.on_device && wait.call.entry < call.entry) before = &wait;
  return before ? call_words(*before) + " before it is not done" : "a kernel before it still runs";
}

std::string stages_words(const HangPicture& picture, const dist::CollectiveRecord& call) {
  using dist::CollectiveStage;
  std::string text;
  const auto add = [&](const std::string& words) { text += (text.empty() ? "" : ", ") + words; };
  for (const auto& [stage, ranks] : stages_of(picture, call)) {
    if (stage == CollectiveStage::started) add("it has started on " + ranks.words());
    if (stage == CollectiveStage::ready)
      add(fmt::format("an earlier collective of the group is not done on {}", ranks.words()));
    if (stage == CollectiveStage::enqueued) add(fmt::format("{} enqueued it", ranks.words()));
    if (stage != CollectiveStage::waiting_for_stream) continue;
    std::map<std::string, RankSet> by_reason;
    for (const int rank : ranks) by_reason[before_words(picture.rank(rank)->waits, call)].insert(rank);
    for (const auto& [reason, those] : by_reason)
      add(fmt::format("the {} of {} {} not reached it ({})", those.size() == 1 ? "stream" : "streams", those.words(),
                      those.size() == 1 ? "has" : "have", reason));
  }
  return text;
}

std::string seconds_words(double seconds) {
  return seconds < 10 ? fmt::format("{:.1f} s", seconds) : fmt::format("{:.0f} s", seconds);
}

std::string left_words(const RankPicture& rank) {
  switch (rank.place) {
    case RankPicture::Place::dead:
      return "died" + (rank.error_type.empty() ? "" : " of " + rank.error_type) + in_brackets(rank.where);
    case RankPicture::Place::elsewhere:
      return "{does} not run this cell";
    case RankPicture::Place::in_cell:
      return "{has} not left";
    case RankPicture::Place::left:
      break;
  }
  if (rank.how == CellStatus::error)
    return "threw" + (rank.error_type.empty() ? std::string(" an exception") : " " + rank.error_type) +
           in_brackets(rank.where);
  if (rank.how == CellStatus::interrupted) return "{was} interrupted";
  if (rank.how == CellStatus::aborted) return "{was} aborted" + in_brackets(rank.where);
  std::string text = "{has} finished without entering it";
  if (!rank.recent.empty() && !rank.last_where.empty())
    text += fmt::format("; {{its}} last call was {} #{}{}", rank.recent.back().op, rank.recent.back().seq,
                        in_brackets(rank.last_where));
  return text;
}

std::string caught_words(const RankPicture& rank, const dist::CollectiveRecord& call) {
  if (rank.caught.empty()) return {};
  const CaughtThrow& first = rank.caught.front();
  const dist::CollectiveRecord* before = nullptr;
  int64_t last = 0;
  for (const dist::CollectiveRecord& each : rank.recent) {
    if (each.group != call.group || each.point_to_point) continue;
    last = std::max(last, each.seq);
    if (each.entered_ns <= first.time_ns && (!before || each.seq > before->seq)) before = &each;
  }
  std::string text = fmt::format("; rank {} threw {}{}{}", rank.rank, first.type, in_brackets(first.where),
                                 before ? fmt::format(" after {} #{}", before->op, before->seq) : std::string());
  if (rank.caught.size() > 1) text += fmt::format(", and {} more,", rank.caught.size() - 1);
  text += " and caught it";
  const int64_t next = before ? before->seq + 1 : 1;
  if (last < next) return text + ": it has made no call since";
  const bool one = last == next;
  return text +
         fmt::format(": if it skipped a call then, its {} since ({}) matched {} of other steps on the other ranks",
                     one ? "call" : "calls", one ? fmt::format("#{}", next) : fmt::format("#{} to #{}", next, last),
                     one ? "a call" : "calls");
}

std::string line_of(const RankPicture& rank, const dist::CollectiveRecord& record) {
  for (const RankWait& wait : rank.waits)
    if (wait.call.group == record.group && wait.call.seq == record.seq) return wait.where;
  if (const auto line = rank.lines.find(record.entry); line != rank.lines.end()) return line->second;
  if (!rank.recent.empty() && rank.recent.back().entry == record.entry) return rank.last_where;
  return {};
}

}  // namespace lockstep::inspect
