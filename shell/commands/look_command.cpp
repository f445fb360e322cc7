// `lockstep look [PID…]` says what the ranks of a running job do that was started without Lockstep. It changes nothing
// in the job.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "inspectors/hang/words.h"
#include "protocol/error.h"
#include "shell/commands/command.h"
#include "shell/commands/print_findings.h"
#include "shell/events/exit_code.h"
#include "shell/look/look.h"
#include "shell/look/running_ranks.h"
#include "shell/look/stack_tree.h"
#include "shell/text/text.h"

namespace lockstep::shell {
namespace {

using nlohmann::json;

constexpr size_t kMostLines = 22;  // of stacks, so that the verdict is on the same screen
constexpr size_t kMostNative = 6;  // frames of a native stack, in one line

struct LookCommand {
  std::vector<int64_t> pids;
  std::string job, py_spy;
  double hang_timeout_s = 60, limit_s = 10;
  bool all_threads = false, whole = false, as_json = false;
};

/// Returns "c10d::Work::wait" of "c10d::Work::wait(std::chrono::duration<long, std::ratio<1l, 1000l> >)".
std::string short_name(const std::string& function) {
  std::string name;
  int depth = 0;
  for (const char c : function) {
    if (c == '<') ++depth;
    if (depth == 0 && c == '(') break;
    if (depth == 0) name += c;
    if (c == '>') --depth;
  }
  return name;
}

/// Returns the native frames below the interpreter's, or all of a program that is not Python's, outermost first: "c10d::Work::wait
/// > pthread_cond_wait". Empty without names.
std::string native_text(const std::vector<inspect::StackFrame>& frames, const Screen& screen) {
  std::vector<std::string> names;
  for (const inspect::StackFrame& each : frames) {
    const bool python = each.object.starts_with("python") || each.object.starts_with("libpython");
    if (python && !each.function.starts_with("PyThread_")) break;
    std::string name = short_name(each.function);
    if (name.find("pybind11::") != std::string::npos) break;  // how Python calls it
    if (!name.empty() && (names.empty() || names.back() != name)) names.push_back(std::move(name));
  }
  std::string text;
  const size_t shown = std::min(names.size(), kMostNative);
  if (shown < names.size()) text = signs(screen).dots;
  for (size_t i = shown; i-- > 0;) text += (text.empty() ? "" : " > ") + names[i];
  return text;
}

/// Returns "torch/distributed/distributed_c10d.py" of a package's file; other files as they are.
std::string short_file(const std::string& file) {
  for (const char* folder : {"/site-packages/", "/dist-packages/"})
    if (const size_t at = file.rfind(folder); at != std::string::npos)
      return file.substr(at + std::string_view(folder).size());
  const size_t at = file.rfind("/lib/python3");
  const size_t end = at == std::string::npos ? at : file.find('/', at + 5);
  return end == std::string::npos ? file : file.substr(end + 1);
}

std::vector<TreeFrame> frames_of(const std::vector<inspect::EvidenceFrame>& innermost_first) {
  std::vector<TreeFrame> frames;
  for (auto each = innermost_first.rbegin(); each != innermost_first.rend(); ++each) {
    if (each->file.ends_with("torch/distributed/c10d_logger.py")) continue;  // around every collective
    frames.push_back(
        {.text = without_controls(fmt::format("{} ({}:{})", each->function, short_file(each->file), each->line)),
         .is_library = !inspect::is_of_program(*each)});
  }
  return frames;
}

/// Returns the stacks of main threads.
std::vector<TreeStack> main_stacks(const Look& look, const Screen& screen) {
  std::vector<TreeStack> stacks;
  for (const LookedRank& each : look.ranks) {
    TreeStack stack{.rank = each.rank};
    const PythonThread* const main = each.main_thread();
    if (main) stack.frames = frames_of(main->frames);
    if (const std::string native = native_text(each.native, screen); !native.empty())
      stack.frames.push_back({.text = "native: " + native});
    if (stack.frames.empty()) stack.frames.push_back({.text = "no stack"});
    const auto doing = std::ranges::find(look.remains.doing, each.rank, &inspect::RankDoing::rank);
    if (doing != look.remains.doing.end()) stack.state = doing->words;
    if (main && main->holds_lock) stack.state += " with the interpreter's lock";
    stacks.push_back(std::move(stack));
  }
  return stacks;
}

/// Returns the stacks of other threads that Python has frames of, by the name of the thread. Without `all` those alone
/// that hold the interpreter's lock.
std::map<std::string, std::vector<TreeStack>> other_stacks(const Look& look, bool all) {
  std::map<std::string, std::vector<TreeStack>> by_name;
  for (const LookedRank& rank : look.ranks)
    for (const PythonThread& each : rank.threads)
      if (each.id != rank.pid && (all || each.holds_lock))
        by_name[each.name].push_back({.rank = rank.rank,
                                      .frames = frames_of(each.frames),
                                      .state = each.holds_lock ? "holds the interpreter's lock" : ""});
  return by_name;
}

RankSet ranks_of(const std::vector<TreeStack>& stacks) {
  RankSet ranks;
  for (const TreeStack& each : stacks) ranks.insert(each.rank);
  return ranks;
}

void print_tree(const std::string& thread, const std::vector<TreeStack>& stacks, const Screen& screen, bool whole,
                size_t most) {
  if (stacks.empty()) return;
  const bool one_state =
      std::ranges::all_of(stacks, [&](const TreeStack& each) { return each.state == stacks.front().state; });
  fmt::print(
      "{}, {}{}\n", paint(screen, Style::bold, ranks_of(stacks).words()), thread,
      one_state && !stacks.front().state.empty() ? ": " + inspect::said_of(stacks.front().state, stacks.size()) : "");
  const std::vector<std::string> lines = stack_tree(stacks, screen, whole);
  const size_t shown = whole || lines.size() <= most ? lines.size() : most;
  for (size_t i = 0; i < shown; ++i) {
    const int columns = screen.width > 0 ? screen.width : 0;
    const std::string text(columns > 0 ? fitting(lines[i], columns) : lines[i]);
    fmt::print("{}\n", text);
  }
  if (shown < lines.size()) fmt::print("  {} {} more lines: --whole\n", signs(screen).dots, lines.size() - shown);
}

std::string job_words(const RunningJob& job, const Look& look) {
  const RunningRank& first = job.ranks.front();
  std::string words =
      fmt::format("job {}{}: {} of {} ranks here, {} in {}", job.id, job.launcher.empty() ? "" : " of " + job.launcher,
                  job.ranks.size(), job.world_size, first.script, first.folder);
  words += look.py_spy.empty() ? "; no py-spy" : "; py-spy " + look.py_spy;
  if (job.numbered_here)
    words += "; nothing says which rank a process is: they are numbered in the order of their start";
  return words;
}

void print_look(const LookCommand& command, const RunningJob& job, const Look& look) {
  const Screen screen = detect_screen(STDOUT_FILENO);
  const auto print = [&](const std::string& text) {
    for (const std::string& line : wrapped(without_controls(text), screen.width)) fmt::print("{}\n", line);
  };
  print(job_words(job, look));
  print_tree("main thread", main_stacks(look, screen), screen, command.whole, kMostLines);
  size_t hidden = 0;
  for (const auto& [name, stacks] : other_stacks(look, /*all=*/true)) hidden += stacks.size();
  for (const auto& [name, stacks] : other_stacks(look, command.all_threads)) {
    print_tree("thread " + name, stacks, screen, command.whole, kMostLines / 2);
    hidden -= stacks.size();
  }
  if (hidden > 0) print(fmt::format("and {} more {} of Python: --threads", hidden, hidden == 1 ? "thread" : "threads"));
  for (const std::string& each : look.problems) print(fmt::format("{} {}", signs(screen).note, each));
}

json frames_json(const std::vector<inspect::EvidenceFrame>& frames) {
  json list = json::array();
  for (const inspect::EvidenceFrame& each : frames)
    list.push_back({{"function", each.function}, {"file", each.file}, {"line", each.line}});
  return list;
}

void print_look_as_json(const RunningJob& job, const Look& look) {
  json pids = json::object();
  for (const RunningRank& each : job.ranks) pids[std::to_string(each.rank)] = each.pid;
  print_event({{"event", "job"},
               {"schema", 1},
               {"job", job.id},
               {"launcher", job.launcher.empty() ? json() : json(job.launcher)},
               {"world_size", job.world_size},
               {"pids", pids},
               {"elsewhere", job.elsewhere.ranks()},
               {"py_spy", look.py_spy.empty() ? json() : json(look.py_spy)},
               {"problems", look.problems}});
  for (const inspect::RankDoing& each : look.remains.doing) {
    json event = {{"event", "rank"},        {"rank", each.rank},   {"ended", each.ended},
                  {"kind", each.kind},      {"words", each.words}, {"call", each.op.empty() ? json() : json(each.op)},
                  {"moved", each.has_moved}};
    const auto rank = std::ranges::find(look.ranks, each.rank, &LookedRank::rank);
    if (rank != look.ranks.end()) {
      event["state"] = std::string(1, rank->state.state);
      event["still_s"] = rank->still_s ? json(*rank->still_s) : json();
    }
    print_event(event);
  }
  for (const LookedRank& rank : look.ranks) {
    json native = json::array();
    for (const inspect::StackFrame& each : rank.native)
      native.push_back({{"function", each.function}, {"object", each.object}});
    for (const PythonThread& each : rank.threads) {
      const bool main = each.id == rank.pid;
      print_event({{"event", "stack"},
                   {"rank", rank.rank},
                   {"thread", each.name},
                   {"tid", each.id},
                   {"main", main},
                   {"holds_lock", each.holds_lock},
                   {"python", frames_json(each.frames)},
                   {"native", main ? native : json()}});
    }
    if (!rank.main_thread() && !native.empty())
      print_event({{"event", "stack"},
                   {"rank", rank.rank},
                   {"thread", nullptr},
                   {"tid", rank.pid},
                   {"main", true},
                   {"holds_lock", nullptr},
                   {"python", nullptr},
                   {"native", native}});
  }
}

int look(const LookCommand& command) {
  const auto limit = std::chrono::milliseconds(static_cast<int64_t>(command.limit_s * 1000));
  const RunningJob job = choose_job(find_running_jobs(command.pids, limit), command.job);
  const Look seen = look_at(job, {.py_spy = command.py_spy, .limit = limit});
  const std::vector<Finding> findings = judge_look(seen, command.hang_timeout_s);
  const int code = has_fault(findings) ? kExitFailed : seen.remains.files == 0 ? kExitUsage : kExitOk;
  if (!command.as_json) {
    print_look(command, job, seen);
    std::fflush(stdout);
    print_findings(findings);
    return code;
  }
  print_look_as_json(job, seen);
  print_findings_as_json({{"event", "files"},
                          {"files", seen.remains.files},
                          {"dumps", seen.remains.evidence.size()},
                          {"errors", seen.remains.errors.size()},
                          {"stacks", seen.remains.stacks.size()},
                          {"unread", seen.remains.unread}},
                         findings, code);
  return code;
}

std::function<int()> set_up_look(CLI::App& app) {
  auto command = std::make_shared<LookCommand>();
  app.add_option("pid", command->pids,
                 "Processes of the job: ranks, or their launcher. Not needed if one job of yours runs");
  app.add_option("--job", command->job, "The job, where several run: its id, or the beginning of it");
  app.add_option("--hang-timeout", command->hang_timeout_s,
                 "A wait is a hang if the ranks have waited for this many seconds")
      ->capture_default_str()
      ->type_name("S")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--py-spy", command->py_spy, "The program py-spy; otherwise beside the job's Python, or in PATH")
      ->type_name("FILE");
  app.add_option("--timeout", command->limit_s, "Seconds after which a process that does not answer is left out")
      ->capture_default_str()
      ->type_name("S")
      ->check(CLI::PositiveNumber);
  app.add_flag("--threads", command->all_threads, "All threads of Python, not the main threads alone");
  app.add_flag("--whole", command->whole, "All frames and lines");
  app.add_flag("--json", command->as_json, "JSON lines: job, rank, stack, files, finding, end");
  app.footer(
      "The job may have been started by anything that numbers its ranks (torchrun, srun, mpirun), and goes on as it "
      "is.\n"
      "Lines of Python need py-spy (pip install py-spy). Exit codes: 0 no fault is proven; 1 a fault; 2 bad usage, or "
      "no\n"
      "such job.");
  return [command] { return look(*command); };
}

const RegisterCommand kLook({"look", "What the ranks of a running job do that was started without Lockstep",
                             set_up_look});

}  // namespace
}  // namespace lockstep::shell
