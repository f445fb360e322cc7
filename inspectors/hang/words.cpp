#include "inspectors/hang/words.h"

#include <fmt/format.h>

#include <algorithm>

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
  return verb.ends_with('s') ? verb.substr(0, verb.size() - 1) + sentence.substr(end) : sentence;
}

std::string in_brackets(const std::string& place) { return place.empty() ? "" : " (" + place + ")"; }

std::string call_words(const RankWait& wait) {
  const dist::CollectiveRecord& call = wait.call;
  std::string text = fmt::format("{} #{}", call.op, call.seq);
  if (call.point_to_point && call.root >= 0)
    text += fmt::format(" {} rank {}", dist::is_recv(call) ? "from" : "to", call.root);
  if (call.point_to_point && call.tag != 0) text += fmt::format(" with tag {}", call.tag);
  if (call.group != "default" && !call.group.empty()) text += " of " + call.group;
  return text + in_brackets(wait.where);
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
  if (!rank.recent.empty() && rank.recent.back().entry == record.entry) return rank.last_where;
  return {};
}

}  // namespace lockstep::inspect
