// %hang shows what every rank does now, and who waits for whom.
#include <fmt/format.h>

#include <algorithm>

#include "inspectors/hang/analysis.h"
#include "inspectors/hang/join.h"
#include "inspectors/hang/needs.h"
#include "inspectors/hang/state.h"
#include "inspectors/hang/words.h"
#include "shell/magics/inspectors/job_magic.h"
#include "shell/session/session_core.h"

namespace lockstep::shell {
namespace {

nlohmann::json data_of(const inspect::HangPicture& picture, const inspect::RankPicture& rank) {
  constexpr const char* kPlaces[] = {"in_cell", "left", "elsewhere", "dead"};
  nlohmann::json waits = nlohmann::json::array(), stack = nlohmann::json::array();
  for (const auto& wait : rank.waits)
    waits.push_back(
        {{"op", dist::to_finding_op(wait.call)},
         {"where", wait.where.empty() ? nlohmann::json() : nlohmann::json(wait.where)},
         {"stage", wait.call.on_device ? nlohmann::json(dist::stage_name(wait.call.stage())) : nlohmann::json()},
         {"seconds", static_cast<double>(picture.now_ns - wait.call.entered_ns) / 1e9}});
  for (const auto& frame : rank.stack) {
    std::string text = frame.function;
    if (frame.cell > 0) text += (text.empty() ? "" : " at ") + inspect::code_line({frame});
    if (!text.empty()) stack.push_back(std::move(text));
  }
  return {{"rank", rank.rank},
          {"place", kPlaces[static_cast<size_t>(rank.place)]},
          {"does", rank.activity},
          {"text", inspect::rank_sentence(picture, rank)},
          {"where", rank.where.empty() ? nlohmann::json() : nlohmann::json(rank.where)},
          {"waits", std::move(waits)},
          {"waits_for", inspect::waited_for(picture, rank.rank)},
          {"stack", std::move(stack)}};
}

CellOutcome hang(MagicCall& call) {
  nlohmann::json cells = nlohmann::json::array();
  std::string text;
  for (const auto& picture : call.session.hang_pictures()) {
    nlohmann::json ranks = nlohmann::json::array(), proven = nlohmann::json::array(),
                   reported = nlohmann::json::array();
    if (picture.number > 0) text += fmt::format("{}cell {}\n", text.empty() ? "" : "\n", picture.number);
    std::vector<std::pair<std::string, RankSet>> lines;  // equal ones once
    for (const auto& rank : picture.ranks) {
      ranks.push_back(data_of(picture, rank));
      const std::string sentence = inspect::rank_sentence(picture, rank);
      const auto known =
          std::find_if(lines.begin(), lines.end(), [&](const auto& line) { return line.first == sentence; });
      if (known == lines.end())
        lines.push_back({sentence, RankSet{rank.rank}});
      else
        known->second.insert(rank.rank);
    }
    for (const auto& [sentence, set] : lines)
      text += fmt::format("{}: {}\n", set.words(), inspect::said_of(sentence, set.size()));
    bool somebody_waits = false;
    for (const auto& rank : picture.ranks) somebody_waits |= !inspect::waited_for(picture, rank.rank).empty();
    for (const auto& found : inspect::analyse_hang(picture).proven) {
      text += "hang: " + found.finding.message + "\n";
      proven.push_back(found.finding);
    }
    if (proven.empty() && somebody_waits) text += "no hang is proven\n";
    for (auto& found : inspect::evidence_findings(picture)) {
      text += found.message + "\n";
      reported.push_back(std::move(found));
    }
    for (const std::string& problem : picture.unread) text += "not read: " + problem + "\n";
    cells.push_back({{"cell", picture.number > 0 ? nlohmann::json(picture.number) : nlohmann::json()},
                     {"ranks", std::move(ranks)},
                     {"proven", std::move(proven)},
                     {"reported", std::move(reported)},
                     {"unread_evidence", picture.unread}});
  }
  if (cells.empty()) text = "no ranks are running";
  call.session.message(text, {{"hang", std::move(cells)}});
  return {};
}

const RegisterMagic kHang(
    {.name = "hang",
     .summary = "what every rank does now, and who waits for whom",
     .help = "Works while a cell runs, too. A hang is proven if the rank that others wait for has left the "
             "cell, died, or waits in another collective itself; such hangs are also reported automatically, "
             "once. %abort frees the ranks that are stuck, and keeps their state.",
     .line = hang,
     .at_any_time = true,
     .in_sessions = true,
     .job_line = hang_of_job});

}  // namespace
}  // namespace lockstep::shell
