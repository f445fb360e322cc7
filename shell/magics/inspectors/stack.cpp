// %stack: native stacks of the ranks, with the lines of cells named.
#include <algorithm>

#include "shell/magics/inspectors/job_magic.h"
#include "shell/session/session_core.h"

namespace lockstep::shell {
namespace {

std::string stack_text(const protocol::question::Stack::Answer& answer) {
  if (!answer.error.empty()) return "    " + answer.error + "\n";
  std::string text;
  for (const std::string& line : answer.stack) text += "    " + line + "\n";
  return text.empty() ? "    no cell runs\n" : text;
}

CellOutcome stack(MagicCall& call) {
  const auto spec = call.given.word();
  const RankSet ranks = spec ? call.session.parse_ranks(*spec) : call.session.live_ranks();
  if (spec) call.session.check_alive(ranks);
  auto answers = call.session.query(ranks, protocol::question::Stack());
  std::vector<std::pair<std::string, RankSet>> shown;  // equal ones once
  nlohmann::json data = nlohmann::json::object();
  for (int rank : ranks) {
    const auto [answer, is_missing] = answers.try_emplace(rank);
    if (is_missing) answer->second.error = "no answer";
    data[std::to_string(rank)] = protocol::encode_answer(answer->second);
    const std::string text = stack_text(answer->second);
    const auto known = std::find_if(shown.begin(), shown.end(), [&](const auto& each) { return each.first == text; });
    if (known == shown.end())
      shown.push_back({text, RankSet{rank}});
    else
      known->second.insert(rank);
  }
  std::string text;
  for (const auto& [lines, set] : shown) text += set.words() + "\n" + lines;
  call.session.message(ranks.empty() ? "no ranks are running" : text, {{"ranks", ranks}, {"stacks", std::move(data)}});
  return {};
}

const RegisterMagic kStack({.name = "stack",
                            .summary = "native stacks of the ranks, with the lines of cells named",
                            .help = "Innermost first. Answered also while a cell runs.",
                            .takes = {{"[SPEC]", "these ranks only"}},
                            .line = stack,
                            .at_any_time = true,
                            .job_line = stack_of_job});

}  // namespace
}  // namespace lockstep::shell
