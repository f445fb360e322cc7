#include "shell/look/look.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <ratio>
#include <thread>
#include <utility>

#include "inspectors/findings/about.h"
#include "inspectors/hang/words.h"
#include "inspectors/remains/judge.h"
#include "shell/jobs/job_picture.h"
#include "shell/jobs/rank_ends.h"
#include "shell/jobs/stall.h"
#include "shell/look/copies.h"
#include "shell/look/native_stack.h"
#include "shell/look/torch_evidence.h"
#include "shell/processes/launcher.h"

namespace lockstep::shell {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;

/// Holds what a copy of this process says of a rank.
struct Answer {
  bool exists = false, refused = false;
  std::vector<std::string> problems;
  ThreadState state;
  PythonStacks python;
  std::vector<inspect::StackFrame> native;
};

json to_text(const Answer& answer) {
  json threads = json::array(), native = json::array();
  for (const PythonThread& each : answer.python.threads) {
    json frames = json::array();
    for (const inspect::EvidenceFrame& frame : each.frames)
      frames.push_back({{"name", frame.function}, {"filename", frame.file}, {"line", frame.line}});
    threads.push_back(
        {{"os_thread_id", each.id}, {"thread_name", each.name}, {"owns_gil", each.holds_lock}, {"frames", frames}});
  }
  for (const inspect::StackFrame& each : answer.native) native.push_back({each.function, each.object});
  const ThreadState& state = answer.state;
  return {{"exists", answer.exists},
          {"refused", answer.refused},
          {"problems", answer.problems},
          {"state", {std::string(1, state.state), state.switches, state.run_ns, state.processor}},
          {"python", threads.dump(-1, ' ', false, json::error_handler_t::replace)},
          {"native", native}};
}

Answer from_text(const std::string& text) {
  const json from = json::parse(text);
  Answer answer{.exists = from.at("exists"), .refused = from.at("refused"), .problems = from.at("problems")};
  const json& state = from.at("state");
  answer.state = {
      .state = state[0].get<std::string>().front(), .switches = state[1], .run_ns = state[2], .processor = state[3]};
  answer.python.threads = read_py_spy(from.at("python"));
  for (const json& each : from.at("native")) answer.native.push_back({.function = each[0], .object = each[1]});
  return answer;
}

/// Returns the state of a thread that this look has stopped, once it waits again as it did: what it has run for that is
/// no movement of its own.
ThreadState settled(int64_t pid, const ThreadState& before) {
  constexpr milliseconds kPatience{100}, kPoll{1};  // no event tells when a thread of another process sleeps
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (true) {
    const auto now = thread_state(pid, pid);
    if (!now) return before;
    if (now->state == before.state || std::chrono::steady_clock::now() >= deadline) return *now;
    std::this_thread::sleep_for(kPoll);
  }
}

Answer look_at_process(int64_t pid, const std::string& py_spy, milliseconds limit) {
  Answer answer;
  const auto state = thread_state(pid, pid);
  if (!state || state->state == 'Z' || state->state == 'X') return answer;
  answer.exists = true;
  answer.state = *state;
  // Nothing reads the memory of a process that may keep it locked, nor stops a thread that can't be stopped.
  if (state->state == 'D') return answer;
  const NativeStack native = native_stack(pid, pid);
  answer.native = native.frames;
  answer.refused = native.refused;
  if (!native.problem.empty() && !native.refused) answer.problems.push_back("no native stack: " + native.problem);
  if (native.stopped && !state->is_running()) answer.state = settled(pid, *state);
  if (py_spy.empty()) return answer;
  answer.python = python_stacks(py_spy, pid, state->is_running(), limit);
  // What was read of a rank that has moved meanwhile may be of two moments.
  const auto after = thread_state(pid, pid);
  if (after && !state->is_running() && after->has_run_since(answer.state)) {
    answer.python = python_stacks(py_spy, pid, /*stops=*/true, limit);
    answer.state = settled(pid, answer.state);
  }
  // It is refused what this process is; else it has words of its own for it.
  if (!answer.python.problem.empty() && !native.refused)
    answer.problems.push_back("no Python stack: " + answer.python.problem);
  return answer;
}

std::map<int64_t, Answer> look_at_processes(const std::vector<int64_t>& pids, const std::string& py_spy,
                                            milliseconds limit) {
  std::map<int64_t, Answer> answers;
  const auto ask = [&](int64_t pid) { return to_text(look_at_process(pid, py_spy, limit)).dump(); };
  // py-spy has its own limit, and is asked twice at most.
  for (const auto& [pid, text] : ask_in_copies(pids, 3 * limit, ask)) answers.emplace(pid, from_text(text));
  return answers;
}

std::vector<std::string> python_folders(const RunningJob& job) {
  // Only processes of this user count: another one's folder may have a program that is no py-spy.
  std::vector<std::string> folders;
  for (const RunningRank& each : job.ranks)
    if (!each.python_folder.empty() && is_own_process(each.pid) &&
        std::ranges::find(folders, each.python_folder) == folders.end())
      folders.push_back(each.python_folder);
  return folders;
}

/// Returns the function of torch.distributed that the program has called; empty where it is in none.
std::string call_of(const std::vector<inspect::EvidenceFrame>& frames) {
  const auto is_of_c10d = [](const inspect::EvidenceFrame& frame) {
    return frame.file.ends_with("torch/distributed/distributed_c10d.py") ||
           frame.file.ends_with("torch/distributed/_functional_collectives.py");
  };
  // Of calls within calls that which the program has made: all_gather_object, and not its all_gather.
  std::string name;
  for (const inspect::EvidenceFrame& frame : frames)
    if (is_of_c10d(frame) && !frame.function.starts_with('_'))
      name = frame.function;
    else if (!name.empty() && inspect::is_of_program(frame))
      break;
  return name;
}

bool waits_for_interpreter(const LookedRank& rank) {
  const bool at_lock = std::ranges::any_of(rank.native, [](const inspect::StackFrame& frame) {
    return frame.function.starts_with("PyEval_RestoreThread") || frame.function.starts_with("PyEval_AcquireThread") ||
           frame.function.starts_with("take_gil") || frame.function.starts_with("PyGILState_Ensure");
  });
  return at_lock && std::ranges::any_of(
                        rank.threads, [&](const PythonThread& each) { return each.holds_lock && each.id != rank.pid; });
}

inspect::RankDoing doing_of_looked(const LookedRank& rank, const std::vector<inspect::EvidenceFrame>& frames,
                                   const std::vector<inspect::EvidenceFrame>& before) {
  json native = json::array();
  for (const inspect::StackFrame& each : rank.native)
    native.push_back({{"function", each.function}, {"object", each.object}});
  const bool runs = rank.state.is_running();
  inspect::RankDoing doing = doing_of(
      rank.rank, {{"native", native}, {"held", !runs}, {"at_lock", waits_for_interpreter(rank) ? "held" : ""}}, frames);
  doing.has_moved = rank.has_moved;
  if (rank.state.is_stopped()) {
    doing.kind = FindingKind::stopped;
    doing.words = "is stopped (SIGSTOP, its terminal, or a debugger)";
    return doing;
  }
  if (rank.state.state == 'D') {
    const std::string where = kernel_function(rank.pid, rank.pid);
    doing.kind = FindingKind::blocked;
    doing.words = "is blocked in the kernel" + (where.empty() ? "" : " (" + where + ")") + ", where no stack is taken";
    return doing;
  }
  if (rank.native.empty()) {
    doing.kind = runs ? FindingKind::computing : FindingKind::unknown;
    doing.words = runs ? "computes" : "waits";
  }
  const bool waits = doing.kind != FindingKind::computing;
  if (waits && doing.kind != FindingKind::device && doing.kind != FindingKind::lock) doing.op = call_of(frames);
  if (doing.op.empty() && doing.kind == FindingKind::collective) doing.op = "a collective";
  if (!doing.op.empty()) doing.words = "waits in " + doing.op;
  const inspect::EvidenceFrame* const now = inspect::program_frame(frames);
  const inspect::EvidenceFrame* const then = inspect::program_frame(before);
  if (rank.has_moved && doing.op.empty() && now && then)
    doing.words += *now == *then ? " at the same line in both looks"
                   : now->function == then->function && now->file == then->file
                       ? " at another line of the same function in the other look"
                       : " elsewhere in the other look";
  return doing;
}

void add_ended(const RunningJob& job, Look& look) {
  const RankSet gone = job.gone();
  for (const int rank : gone) {
    inspect::RankDoing doing{
        .rank = rank, .kind = FindingKind::died, .words = "has no process any more", .ended = true};
    if (gone.size() == 1 && job.ended.size() == 1) {
      const SeenEnd end{.rank = rank, .pid = job.ended.front().pid, .wait_status = job.ended.front().wait_status};
      doing.kind = end.is_clean() ? FindingKind::finished : FindingKind::died;
      doing.words = end.is_clean() ? "has finished" : end.words();
    }
    look.remains.doing.push_back(std::move(doing));
    ++look.remains.files;
  }
  if (gone.size() > 1 && !job.ended.empty()) {
    std::string ends;
    for (const EndedProcess& each : job.ended)
      ends += fmt::format("{}process {} {}", ends.empty() ? "" : ", ", each.pid,
                          SeenEnd{.pid = each.pid, .wait_status = each.wait_status}.words());
    look.problems.push_back(fmt::format("which of {} ended how is not known: {}", gone.words(), ends));
  }
}

/// Returns for how long a rank has been in the collective of the finding, or else in any other that its recorder has as
/// unfinished: a rank may wait for its device without a pause of its thread. 0 where that is not known.
double seconds_in_collective(const Look& look, int rank, const std::optional<FindingOp>& op) {
  const auto now =
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  double longest = 0, in_finding = 0;
  for (const inspect::Evidence& dump : look.remains.evidence) {
    if (dump.rank != rank) continue;
    for (const inspect::EvidenceCall& call : dump.calls) {
      if (call.state == inspect::EvidenceState::completed || call.point_to_point || call.created_ns <= 0) continue;
      const double seconds =
          static_cast<double>((dump.taken_ns > 0 ? dump.taken_ns : now) - call.created_ns) / std::nano::den;
      longest = std::max(longest, seconds);
      if (op && call.op == op->name && call.seq == op->seq) in_finding = std::max(in_finding, seconds);
    }
  }
  return in_finding > 0 ? in_finding : longest;
}

}  // namespace

const PythonThread* LookedRank::main_thread() const {
  const auto found = std::ranges::find(threads, pid, &PythonThread::id);
  return found == threads.end() ? nullptr : &*found;
}

Look look_at(const RunningJob& job, const LookOptions& options) {
  Look look;
  look.remains.look = inspect::OutsideLook{.world = job.world(), .elsewhere = job.elsewhere};
  const std::string py_spy = find_py_spy(options.py_spy, python_folders(job));
  if (!py_spy.empty()) look.py_spy = py_spy_version(py_spy, options.limit);
  const bool any_python =
      std::ranges::any_of(job.ranks, [](const RunningRank& each) { return !each.python_folder.empty(); });
  if (py_spy.empty() && any_python)
    look.problems.emplace_back(
        "no Python stacks, and no lines of the program: there is no py-spy beside the job's Python, nor in PATH. pip "
        "install py-spy there, or name one: --py-spy PATH");
  // What the kernel knows comes first, before anything that the rank could notice.
  std::map<int64_t, std::optional<double>> still;
  std::vector<int64_t> pids;
  for (const RunningRank& each : job.ranks) {
    pids.push_back(each.pid);
    if (const auto state = thread_state(each.pid, each.pid); state && !state->is_running())
      still[each.pid] = seconds_since_it_ran(each.pid, each.pid, state->processor);
  }
  const auto first = std::chrono::steady_clock::now();
  std::map<int64_t, Answer> answers = look_at_processes(pids, py_spy, options.limit), before;
  // Nothing can be seen of a rank by waiting that has not run for longer than that.
  const bool all_still = std::ranges::all_of(job.ranks, [&](const RunningRank& each) {
    return still[each.pid].value_or(0) * 1000 >= static_cast<double>(options.apart.count());
  });
  if (!all_still) std::this_thread::sleep_until(first + options.apart);
  // A main thread that has not run is where it was.
  std::vector<int64_t> moved;
  for (const auto& [pid, answer] : answers)
    if (const auto now = thread_state(pid, pid); answer.exists && now && now->has_run_since(answer.state))
      moved.push_back(pid);
  for (auto& [pid, answer] : look_at_processes(moved, py_spy, options.limit))
    if (answer.exists) before[pid] = std::exchange(answers[pid], std::move(answer));
  RankSet refused, silent;
  for (const RunningRank& each : job.ranks) {
    const auto found = answers.find(each.pid);
    if (found == answers.end()) silent.insert(each.rank);
    if (found == answers.end() || !found->second.exists) continue;
    Answer& answer = found->second;
    if (answer.refused && answer.native.empty()) refused.insert(each.rank);
    for (const std::string& problem : answer.problems)
      look.problems.push_back(fmt::format("rank {}: {}", each.rank, problem));
    LookedRank& rank =
        look.ranks.emplace_back(LookedRank{.rank = each.rank,
                                           .pid = each.pid,
                                           .state = answer.state,
                                           .threads = std::move(answer.python.threads),
                                           .native = std::move(answer.native),
                                           .has_moved = std::ranges::find(moved, each.pid) != moved.end()});
    if (rank.has_moved)
      rank.still_s = 0;
    else
      rank.still_s = std::max(still[each.pid].value_or(0), options.apart.count() / 1000.0);
    const PythonThread* const main = rank.main_thread();
    const auto frames = main ? main->frames : std::vector<inspect::EvidenceFrame>();
    std::vector<inspect::EvidenceFrame> frames_before;
    if (const auto old = before.find(each.pid); old != before.end()) {
      const auto thread = std::ranges::find(old->second.python.threads, each.pid, &PythonThread::id);
      if (thread != old->second.python.threads.end()) frames_before = thread->frames;
    }
    look.remains.doing.push_back(doing_of_looked(rank, frames, frames_before));
    for (const PythonThread& thread : rank.threads)
      look.remains.stacks.push_back({.rank = rank.rank,
                                     .thread = thread.name,
                                     .is_main = thread.id == rank.pid,
                                     .frames = thread.frames,
                                     .origin = fmt::format("rank {}", rank.rank)});
    ++look.remains.files;
  }
  if (!refused.empty())
    look.problems.push_back(fmt::format("the stacks of {} can't be read, since the kernel refuses it (ptrace). {}",
                                        refused.words(), how_to_be_allowed()));
  if (!silent.empty())
    look.problems.push_back(
        fmt::format("{}: the kernel has not answered in time, {} may be stuck in a driver or a file "
                    "system",
                    silent.words(), silent.size() == 1 ? "it" : "they"));
  add_torch_evidence(job, options.limit, look.remains, look.problems);
  add_ended(job, look);
  return look;
}

std::vector<Finding> judge_look(const Look& look, double hang_after_s) {
  std::vector<Finding> findings = inspect::judge(look.remains);
  const auto still_for = [&](const RankSet& ranks, const std::optional<FindingOp>& op, bool by_recorder) {
    std::optional<double> least;
    for (const LookedRank& each : look.ranks) {
      if (!ranks.contains(each.rank)) continue;
      const double recorded = by_recorder ? seconds_in_collective(look, each.rank, op) : 0;
      const double seconds = std::max(each.still_s.value_or(0), recorded);
      least = std::min(least.value_or(seconds), seconds);
    }
    return least.value_or(0);
  };
  const auto cause = std::ranges::find_if(findings.rbegin(), findings.rend(), inspect::is_fault);
  if (cause == findings.rend()) {
    RankSet all;
    for (const LookedRank& each : look.ranks) all.insert(each.rank);
    const double still = still_for(all, {}, /*by_recorder=*/false);
    if (still < hang_after_s) return findings;
    if (auto stall = stall_without_collective(look.remains, all, still)) findings.back() = std::move(*stall);
    return findings;
  }
  if (cause->verdict != Verdict::hang) return findings;
  const RankSet waiting = cause->reference_ranks.empty() ? cause->ranks : cause->reference_ranks;
  const double waited = still_for(waiting, cause->op, /*by_recorder=*/true);
  if (waited > 0)
    cause->message += fmt::format("; {} {} waited for {} at least", waiting.words(),
                                  waiting.size() == 1 ? "has" : "have", inspect::seconds_words(waited));
  if (is_proven_stall(findings) || cause->kind == FindingKind::stopped || waited >= hang_after_s) return findings;
  findings = as_notes(std::move(findings));
  Finding last = inspect::About{.inspector = "hang", .object = {}, .step = {}, .ranks = waiting, .names = {}}.finding(
      Severity::note, Verdict::unsupported);
  last.message = fmt::format("no hang is proven by this: a wait of less than {} may end (--hang-timeout)",
                             inspect::seconds_words(hang_after_s));
  findings.push_back(std::move(last));
  return findings;
}

}  // namespace lockstep::shell
