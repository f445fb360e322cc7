// %restart starts dead ranks again in their places, with what their cells had defined.
#include "shell/magics/restart.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "protocol/error.h"
#include "shell/magics/inspectors/inspector_magic.h"
#include "shell/magics/inspectors/object_list.h"
#include "shell/session/session_core.h"

namespace lockstep::shell {
namespace {

constexpr size_t kMostLeftOut = 20;  // that are listed

std::string report_on(int rank, const RestartedRank& restarted) {
  std::string text = fmt::format("rank {} is {}: {} cell{} ran again", rank, restarted.is_new ? "new" : "back",
                                 restarted.cells, restarted.cells == 1 ? "" : "s");
  if (restarted.output_bytes > 0)
    text += fmt::format(" (the {} bytes that they wrote are left out)", restarted.output_bytes);
  for (const FailedAgain& failed : restarted.failures)
    text += fmt::format("\ncell {} failed as it ran again: {}", failed.number,
                        failed.error.message.substr(0, failed.error.message.find('\n')));
  const auto& left_out = restarted.left_out;
  for (size_t i = 0; i < std::min(left_out.size(), kMostLeftOut); ++i)
    text += fmt::format("\nnot run again: cell {}, line {}: {}", left_out[i].number, left_out[i].line, left_out[i].why);
  if (left_out.size() > kMostLeftOut)
    text += fmt::format("\nnot run again: {} more statements of later cells", left_out.size() - kMostLeftOut);
  if (!restarted.cells_without_it.empty())
    text += fmt::format("\nran without it: cell{} {}", restarted.cells_without_it.size() == 1 ? "" : "s",
                        restarted.cells_without_it.str());
  return text;
}

nlohmann::json data_of(const RestartedRank& restarted) {
  nlohmann::json left_out = nlohmann::json::array();
  for (const LeftOutStep& step : restarted.left_out)
    left_out.push_back({{"cell", step.number}, {"line", step.line}, {"why", step.why}});
  return {{"cells", restarted.cells}, {"not_run_again", left_out}, {"ran_without", restarted.cells_without_it}};
}

/// Returns the numbers of these ranks in the default group.
std::vector<int> numbers_of(const RankSet& ranks, const SessionCore& session) {
  const RankSet all = session.default_ranks();
  std::vector<int> numbers;
  for (const int rank : ranks)
    numbers.push_back(static_cast<int>(std::ranges::find(all.ranks(), rank) - all.ranks().begin()));
  return numbers;
}

/// Copies what the modules and optimizers among the names of the session hold.
CellOutcome restore(MagicCall& call, int from, const RankSet& to) {
  CellSettings settings;
  settings.ranks = call.session.live_ranks();
  const std::vector<std::string> names = object_names(call.session, *settings.ranks);
  std::string code = fmt::format("__lockstep::Restoration({}, {})", numbers_of({from}, call.session).front(),
                                 cxx_ranks(RankSet(numbers_of(to, call.session))));
  for (const std::string& name : names) code += ".add(" + quoted(name) + ", " + name + ")";
  const CellOutcome outcome = run_inspector(call, code + ".run()", settings, /*shows=*/true);
  std::vector<std::string> absent;
  for (const std::string& name : object_names(call.session, RankSet{from}))
    if (std::ranges::find(names, name) == names.end()) absent.push_back(name);
  if (!absent.empty())
    call.session.message(fmt::format("not copied, since not all ranks have a name: {}", fmt::join(absent, ", ")));
  return outcome;
}

/// The same for ranks in Python; without `from`, wrappers alone are brought in step.
CellOutcome restore_python(MagicCall& call, const std::optional<int>& from, const RankSet& to) {
  CellSettings settings;
  settings.ranks = call.session.live_ranks();
  settings.own_names = true;
  const std::string source = from ? std::to_string(numbers_of({*from}, call.session).front()) : "None";
  const std::string code = fmt::format("__import__('lockstep.session._restore', fromlist=['run']).run({}, [{}])",
                                       source, fmt::join(numbers_of(to, call.session), ", "));
  return {.status = call.session.run_python(code, settings, 1).status, .findings = {}};
}

}  // namespace

std::optional<int> source_of(MagicCall& call, const RankSet& to) {
  const auto spec = call.given.value("--from");
  if (!spec) return std::nullopt;
  const RankSet from = call.session.parse_ranks(*spec);
  if (from.size() != 1) throw UsageError("--from takes one rank, not " + from.words());
  call.session.check_alive(from);
  const int rank = from.ranks().front();
  if (to.contains(rank)) throw UsageError("--from takes a rank that lives");
  if (const RankSet others = (call.session.dead_ranks() & call.session.default_ranks()) - to; !others.empty())
    throw UsageError(fmt::format("--from needs all ranks: {} {} dead, too (%restart {} --from {})", others.words(),
                                 others.size() == 1 ? "is" : "are", call.session.dead_ranks().str(), rank));
  return rank;
}

CellOutcome start_again(MagicCall& call, const RankSet& ranks, const std::optional<int>& from) {
  SessionCore& session = call.session;
  const SessionCore::Restart restarted = session.restart(ranks);
  std::string text;
  nlohmann::json data = nlohmann::json::object();
  for (const auto& [rank, each] : restarted.ranks) {
    text += (text.empty() ? "" : "\n") + report_on(rank, each);
    data[std::to_string(rank)] = data_of(each);
  }
  if (!text.empty()) session.message(std::move(text), {{"restarted", std::move(data)}});
  const bool is_whole = restarted.is_connected && restarted.ranks.size() == ranks.size();
  CellOutcome outcome{.status = is_whole                   ? CellStatus::ok
                                : restarted.is_interrupted ? CellStatus::interrupted
                                                           : CellStatus::error,
                      .findings = {}};
  if (is_whole && session.options().has_python_ranks() && session.default_ranks() == session.live_ranks())
    outcome = restore_python(call, from, ranks);
  else if (is_whole && from)
    outcome = restore(call, *from, ranks);
  RankSet back;
  for (const auto& each : restarted.ranks) back.insert(each.first);
  if (from && !back.empty() && outcome.status != CellStatus::ok)
    session.message(fmt::format("the model was not copied to {}: {} in a cell on all ranks does that", back.words(),
                                session.options().has_python_ranks()
                                    ? fmt::format("lockstep.session.restore({}, {})", *from, back.ranks())
                                    : fmt::format("ddp::restore(MODEL, OPTIMIZER, {})", *from)));
  if (!restarted.error.empty()) throw Error(restarted.error);
  return outcome;
}

namespace {

CellOutcome restart(MagicCall& call) {
  SessionCore& session = call.session;
  if (!session.started()) throw UsageError("no ranks are running: the next cell starts them");
  const auto spec = call.given.word();
  const RankSet ranks = spec ? session.parse_ranks(*spec) : session.dead_ranks();
  if (ranks.empty()) throw UsageError("no rank is dead");
  const std::optional<int> from = source_of(call, ranks);
  return start_again(call, ranks, from);
}

const RegisterMagic kRestart(
    {.name = "restart",
     .summary = "starts dead ranks again in their places: same rank, same device, names of cells, groups",
     .help =
         "A new process loads all cells in their order. Statements that met no other rank run again, with their side "
         "effects;\nwhat they write and show is left out. What does not run again is listed. Groups of all ranks are "
         "rebuilt.\nNot while a rank is in a cell: %abort frees it.",
     .takes = {{"[SPEC]", "dead ranks; default: all that are dead"},
               {"--from RANK",
                "then copies parameters, buffers, optimizers and generators from this rank, of all modules and "
                "optimizers among the names of the session"}},
     .line = restart,
     .in_sessions = true});

}  // namespace
}  // namespace lockstep::shell
