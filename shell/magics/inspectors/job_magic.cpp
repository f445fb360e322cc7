#include "shell/magics/inspectors/job_magic.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <map>

#include "inspectors/remains/judge.h"
#include "protocol/error.h"
#include "shell/jobs/agent_client.h"
#include "shell/jobs/job_group.h"
#include "shell/jobs/job_logs.h"
#include "shell/jobs/job_picture.h"
#include "shell/jobs/job_words.h"
#include "shell/jobs/remote_host.h"
#include "shell/text/table.h"

namespace lockstep::shell {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kAnswerLimit{3000};
constexpr milliseconds kAbortLimit{10000};  // NCCL waits for its kernels
constexpr const char* kPackage = "__import__('lockstep')";

/// Ranks for a call that is collective.
RankSet all_ranks(MagicCall& call, const std::optional<std::string>& spec) {
  call.session.start();
  if (spec) {
    const RankSet ranks = call.session.parse_ranks(*spec);
    call.session.check_alive(ranks);
    return ranks;
  }
  if (!call.session.options().job) {  // a session's own ranks, of which some may have gone on without the others
    call.session.check_alive(call.session.default_ranks());
    return call.session.default_ranks();
  }
  const RankSet all = RankSet::all(call.session.world_size()), live = call.session.live_ranks();
  if (live != all)
    throw UsageError(
        fmt::format("{} not stopped, and all ranks take part: continue until they have, or name ranks "
                    "with --ranks",
                    (all - live).words() + ((all - live).size() == 1 ? " has" : " have")));
  return all;
}

std::vector<JobMember> members(MagicCall& call, const std::optional<std::string>& spec) {
  call.session.start();
  return call.session.job()->members(spec ? call.session.parse_ranks(*spec) : RankSet::all(call.session.world_size()));
}

std::string call_text(const inspect::EvidenceCall& each) {
  std::string text = each.op;
  const auto& shapes = each.input_shapes.empty() ? each.output_shapes : each.input_shapes;
  const auto& dtypes = each.input_dtypes.empty() ? each.output_dtypes : each.input_dtypes;
  if (!shapes.empty()) text += fmt::format(" [{}]", fmt::join(shapes.front(), ", "));
  if (!dtypes.empty()) text += " " + dtypes.front();
  if (each.state == inspect::EvidenceState::completed) return text;
  return text + (each.state == inspect::EvidenceState::started ? "  started" : "  scheduled");
}

}  // namespace

CellOutcome run_package_inspector(MagicCall& call, const char* function, InspectorOptions options) {
  const auto spec = call.given.value("--ranks");
  std::string arguments = python_options(call.given, options);
  CellSettings settings;
  settings.ranks = all_ranks(call, spec);
  if (spec) arguments += fmt::format(", ranks=[{}]", fmt::join(settings.ranks->ranks(), ", "));
  std::string code;
  for (const std::string& each : call.given.words()) {
    const std::string object = each == "rng" ? "\"rng\"" : each;
    code += fmt::format("{}{}.{}({}, name={}{})", code.empty() ? "" : "; ", kPackage, function, object, quoted(each),
                        arguments);
  }
  if (code.empty()) code = fmt::format("{}.{}({})", kPackage, function, arguments.empty() ? "" : arguments.substr(2));
  const CodeResult result = call.session.run_python(code, settings, call.line);
  return {.status = result.status, .findings = {}};
}

MagicDescription package_arguments(InspectorOptions options) {
  return with_options_and_ranks({{"EXPR...", "objects of the program, such as model"}}, options);
}

CellOutcome hang_of_job(MagicCall& call) {
  const std::vector<JobMember> ranks = members(call, std::nullopt);
  std::map<int, std::string> does = activities_of(ranks, kAnswerLimit);
  for (const int rank : call.session.live_ranks() - call.session.busy_ranks()) does[rank] = "stopped at this prompt";
  std::string text = by_text(does, ": ");
  nlohmann::json data = nlohmann::json::array();
  const inspect::Remains picture = picture_of(ranks, kAnswerLimit);
  std::vector<Finding> findings = inspect::judge(picture);
  if (auto late = straggler_of_job(picture.evidence)) findings.push_back(std::move(*late));
  for (const Finding& finding : findings) {
    text += finding.message + "\n";
    data.push_back(finding);
  }
  if (ranks.empty()) text = "no ranks are running\n";
  call.session.message(text, {{"hang", std::move(data)}});
  return {};
}

CellOutcome stack_of_job(MagicCall& call) {
  const auto stacks = stacks_of(members(call, call.given.word()), kAnswerLimit);
  nlohmann::json data = nlohmann::json::object();
  for (const auto& [rank, text] : stacks) data[std::to_string(rank)] = text;
  call.session.message(stacks.empty() ? "no ranks are running" : by_text(stacks, "\n"), {{"stacks", std::move(data)}});
  return {};
}

CellOutcome collectives_of_job(MagicCall& call) {
  const auto count = static_cast<size_t>(call.given.count("-n").value_or(10));
  struct Key {
    std::string group;
    bool message;
    int64_t seq;
    auto operator<=>(const Key&) const = default;
  };
  std::map<Key, std::map<int, inspect::EvidenceCall>> calls;
  RankSet ranks;
  const inspect::Remains picture = picture_of(members(call, call.given.word()), kAnswerLimit);
  for (const inspect::Evidence& evidence : picture.evidence) {
    if (!evidence.rank) continue;
    ranks.insert(*evidence.rank);
    for (const auto& each : evidence.calls)
      calls[{each.group_description.empty() ? each.group : each.group_description, each.point_to_point, each.seq}]
           [*evidence.rank] = each;
  }
  if (calls.empty()) {
    call.session.message(
        "no collectives are recorded: NCCL has its recorder on with TORCH_FR_BUFFER_SIZE=2000, Gloo "
        "by itself");
    return {};
  }
  std::vector<const std::pair<const Key, std::map<int, inspect::EvidenceCall>>*> order;
  for (const auto& each : calls) order.push_back(&each);
  std::ranges::stable_sort(order, {}, [](const auto* each) { return each->second.begin()->second.created_ns; });
  if (order.size() > count) order.erase(order.begin(), order.end() - static_cast<ptrdiff_t>(count));
  std::vector<std::vector<std::string>> rows = {{"group", "#", "where"}};
  for (const int rank : ranks) rows[0].push_back("rank " + std::to_string(rank));
  for (const auto* each : order) {
    const auto* frame = inspect::program_frame(each->second.begin()->second.frames);
    std::vector<std::string> row = {each->first.group, std::to_string(each->first.seq),
                                    frame ? fmt::format("{}, line {}", frame->file, frame->line) : "-"};
    for (const int rank : ranks) {
      const auto found = each->second.find(rank);
      row.push_back(found == each->second.end() ? "-" : call_text(found->second));
    }
    rows.push_back(std::move(row));
  }
  std::string text = table(rows);
  if (const auto late = straggler_of_job(picture.evidence)) text += late->message + "\n";
  call.session.message(text, {{"ranks", ranks}});
  return {};
}

CellOutcome abort_of_job(MagicCall& call) {
  const auto spec = call.given.word();
  const std::vector<JobMember> ranks = members(call, spec);
  RankSet meant;
  for (const JobMember& each : ranks) meant.insert(each.facts.rank);
  if (ranks.empty()) {
    call.session.message("no ranks are running");
    return {};
  }
  if (!call.given.has("--yes")) {
    call.session.message(fmt::format(
        "%abort{} --yes ends the connections of all process groups of {}. Collectives that are under way there, and on "
        "the ranks that they connect, raise an exception; so does each later collective of these groups, until the "
        "program makes new ones (destroy_process_group, init_process_group). A program that does not catch the "
        "exception ends. Nothing has been done yet",
        spec ? " " + *spec : "", meant.words()));
    return {};
  }
  std::map<int, std::string> texts;
  for (const auto& [rank, answer] : ask_ranks(ranks, {{"request", "abort"}}, kAnswerLimit)) {
    const int64_t count = answer.error.empty() ? answer.body.value("connections", int64_t{0}) : 0;
    texts[rank] = answer.error.empty() ? fmt::format("{} connection{} of Gloo ended", count, count == 1 ? "" : "s")
                                       : "can't be asked: " + answer.error;
  }
  for (const auto& [rank, answer] : ask_ranks(ranks, {{"request", "abort_groups"}}, kAbortLimit)) {
    if (!answer.error.empty()) {
      texts[rank] += "; other groups can't be aborted: " + answer.error;
      continue;
    }
    for (const auto& group : answer.body.value("groups", nlohmann::json::array()))
      texts[rank] += "; aborted group " + group.get<std::string>();
    for (const auto& problem : answer.body.value("problems", nlohmann::json::array()))
      texts[rank] += "; " + problem.get<std::string>();
  }
  call.session.message(by_text(texts, ": "), {{"ranks", meant}});
  return {};
}

CellOutcome memory_of_job(MagicCall& call) {
  call.session.start();
  const std::vector<std::string>& words = call.given.words();
  if (words.empty()) {
    const bool all_answer = call.session.live_ranks() == RankSet::all(call.session.world_size());
    std::map<int, std::string> sizes;
    for (const JobMember& member : members(call, std::nullopt)) {
      const auto host = std::dynamic_pointer_cast<RemoteHost>(member.proxy);
      if (host && !host->is_here()) {  // the number is that of a process of the other machine
        if (!all_answer)
          sizes[member.facts.rank] = fmt::format("on {}, whose processes can't be read here", member.facts.host);
        continue;
      }
      std::ifstream file(fmt::format("/proc/{}/statm", member.facts.pid));
      int64_t total = 0, resident = 0;
      if (file >> total >> resident)
        sizes[member.facts.rank] =
            fmt::format("{:.1f} MiB resident (process {})", static_cast<double>(resident) / 256, member.facts.pid);
    }
    if (!sizes.empty() || !all_answer)
      call.session.message(sizes.empty() ? "no ranks are running" : by_text(sizes, ": "));
    if (!all_answer) return {};
  }
  CellSettings settings;
  settings.ranks = all_ranks(call, std::nullopt);
  std::string named;
  for (const std::string& word : words) named += quoted(word) + ": " + word + ", ";
  const CodeResult result =
      call.session.run_python(fmt::format("{}.memory(**{{{}}})", kPackage, named), settings, call.line);
  return {.status = result.status, .findings = {}};
}

CellOutcome nan_of_job(MagicCall& call) {
  std::vector<std::string> words = call.given.words();
  const std::string word = words.front();
  words.erase(words.begin());
  if ((word == "on") == words.empty())
    throw UsageError(word == "on" ? "%nan on needs what to watch: %nan on model optimizer"
                                  : "%nan " + word + " takes no names");
  CellSettings settings;
  settings.ranks = all_ranks(call, std::nullopt);
  const CodeResult result =
      call.session.run_python(fmt::format("__import__('lockstep.prompt._magics', fromlist=['_magics']).nan_{}({})",
                                          word, fmt::join(words, ", ")),
                              settings, call.line);
  return {.status = result.status, .findings = {}};
}

}  // namespace lockstep::shell
