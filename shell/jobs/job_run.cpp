#include "shell/jobs/job_run.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/inotify.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "inspectors/findings/about.h"
#include "inspectors/remains/judge.h"
#include "protocol/error.h"
#include "protocol/runtime_folder.h"
#include "shell/events/exit_code.h"
#include "shell/jobs/agent_client.h"
#include "shell/jobs/job_logs.h"
#include "shell/jobs/job_picture.h"
#include "shell/jobs/job_signals.h"
#include "shell/jobs/package_environment.h"
#include "shell/jobs/stall.h"
#include "shell/text/text_output.h"

namespace lockstep::shell {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using namespace std::chrono_literals;

constexpr std::chrono::milliseconds kStatusLimit = 2s, kPictureLimit = 20s, kEarlyPictureLimit = 1s,
                                    kLastWordsLimit = 500ms;
constexpr std::chrono::milliseconds kLastEndsLimit = 3s, kReportLimit = 1s;
constexpr double kUnprovenNote = 60;  // seconds without progress after which a job without a limit is looked at

/// Daemons of Ray, which have not got these variables, start actors and tasks: the driver tells Ray of them. One that
/// `ray job submit` has started has a configuration already.
void add_to_ray(std::map<std::string, std::string>& environment) {
  constexpr const char* kConfiguration = "RAY_JOB_CONFIG_JSON_ENV_VAR";
  if (std::getenv(kConfiguration)) return;
  environment[kConfiguration] = json({{"runtime_env", {{"env_vars", environment}}}}).dump();
}

constexpr const char* kWhoIsWatched =
    "Watched are processes whose Python has the wheel of lockstep, or the torch that this lockstep was built for, once "
    "they import torch with RANK and WORLD_SIZE set, or call init_process_group; and programs that are linked with "
    "Lockstep, once they call dist::init_process_group (docs/python.md)";

EventLoop::Clock::duration duration_of(double seconds) {
  return std::chrono::duration_cast<EventLoop::Clock::duration>(std::chrono::duration<double>(seconds));
}

double seconds_since(EventLoop::Clock::time_point when) {
  return std::chrono::duration<double>(EventLoop::Clock::now() - when).count();
}

/// Whether the rank that gave this answer to "status" is in a collective. Throws json::exception.
bool is_in_collective(const json& answer) {
  const json groups = answer.value("groups", json::object());
  return std::any_of(groups.begin(), groups.end(),
                     [](const json& group) { return group.value("enqueued", -1) > group.value("completed", -1); });
}

}  // namespace

JobRun::JobRun(JobOptions options) : options_(std::move(options)), next_look_(loop_), first_rank_(loop_) {}

// After an error of this program the launcher still runs: it and its ranks end with the program that started them.
JobRun::~JobRun() {
  if (launcher_) launcher_->signal(SIGTERM);
}

int JobRun::run() {
  clean_jobs(protocol::runtime_directories());
  folder_ = std::make_unique<JobFolder>(options_.launcher);
  std::map<std::string, std::string> environment = {{protocol::kJobVariable, folder_->path()}};
  add_package(environment);
  if (options_.record.steps > 0) environment["LOCKSTEP_RECORD"] = std::to_string(options_.record.steps);
  if (options_.tail > 0) {
    output_tail_ = std::make_unique<JobOutputTail>(options_.tail, options_.launcher);
    output_tail_->add_to(environment);
  }
  // The recorder keeps so many collectives; some versions of torch have it off by default.
  if (!std::getenv("TORCH_FR_BUFFER_SIZE") && !std::getenv("TORCH_NCCL_TRACE_BUFFER_SIZE"))
    environment["TORCH_FR_BUFFER_SIZE"] = "2000";
  findings_ = std::make_unique<JobFindings>(options_.findings, folder_->path());
  environment["LOCKSTEP_FINDINGS"] = findings_->path();
  const bool has_terminal = ::isatty(STDIN_FILENO) == 1 && ::isatty(STDOUT_FILENO) == 1;
  if (!has_terminal && options_.hang_timeout_s > 0 && !std::getenv("LOCKSTEP_BREAKPOINT_TIMEOUT"))
    environment["LOCKSTEP_BREAKPOINT_TIMEOUT"] = fmt::format("{:g}", options_.hang_timeout_s);  // nobody may come
  add_to_ray(environment);

  new_ranks_ = Descriptor(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
  if (!new_ranks_ || ::inotify_add_watch(new_ranks_.get(), folder_->path().c_str(), IN_MOVED_TO) < 0)
    throw StartError(std::string("the job's folder can't be watched: ") + std::strerror(errno) +
                     " (fs.inotify.max_user_instances)");
  ranks_here_ = std::make_unique<RankWatch>(
      loop_, [this] { return folder_->read().ranks; },
      RankWatch::Listener{
          .came = [this](const JobMember& rank) { on_rank(rank); },
          .changed = [this](const JobMember& rank) { on_rank_change(rank); },
          .ended = [this](const JobMember& rank, SeenEnd end) { on_rank_end(rank, std::move(end), {}); }});
  start_relays();
  signals_ = std::make_unique<JobSignals>();
  Launch launch;
  launch.program = options_.launcher.front();
  launch.arguments.assign(options_.launcher.begin() + 1, options_.launcher.end());
  launch.environment = std::move(environment);
  launch.as_in_shell = true;
  launch.default_signals = {SIGPIPE};  // nohup ignores SIGHUP
  launcher_ = std::make_unique<Child>(launch);
  signals_->pass_on_to(launcher_->pidfd());
  const std::string id = fs::path(folder_->path()).filename().string().substr(std::strlen(protocol::kJobPrefix));
  prompts_ = std::make_unique<JobPrompts>(loop_, id, has_terminal ? options_.serve_prompt : nullptr);
  std::optional<ProcessEnd> end;
  loop_.watch(launcher_->pidfd(), [&] { end = launcher_->ended(); });
  loop_.watch(signals_->fd(), [&] { take_signals(); });
  loop_.watch(new_ranks_.get(), [&] {
    char events[8192];
    while (::read(new_ranks_.get(), events, sizeof events) > 0) {
    }
    look_for_ranks();
    if (const auto verdict = folder_->verdict(); verdict && verdict->ends && !std::exchange(ending_, true))
      launcher_->signal(SIGTERM);
    say_if_judge_is_silent();
  });
  progressed_at_ = EventLoop::Clock::now();
  plan_next_look();
  first_rank_.set_after(duration_of(options_.first_rank_s), [this] { say_that_nothing_is_watched(); });
  loop_.run_until([&] { return end.has_value(); });
  loop_.run_once();  // ends of ranks that are known by now
  next_look_.cancel();
  first_rank_.cancel();
  prompts_.reset();
  conclude(*end);
  keep_recording(options_.record, folder_->path(), world_size_, exit_code_ != 0);
  for (const auto& each : hosts_) each->leave();
  return exit_code_;
}

void JobRun::look_for_ranks() {
  ranks_here_->look();
  look_for_stops();
}

void JobRun::on_rank(const JobMember& rank) {
  if (!std::exchange(ever_ranks_, true)) first_rank_at_ = EventLoop::Clock::now();
  world_size_ = rank.facts.world_size;
  if (ends_.contains(rank.facts.rank) || is_watched(rank.facts.rank)) begin_attempt();
  progressed_at_ = EventLoop::Clock::now();
  host_of_[rank.facts.rank] = rank.facts.host;
  place_of_[rank.facts.rank] = {rank.proxy.get(), rank.folder()};
  is_of_this_machine_alone_ = rank.facts.local_world_size == rank.facts.world_size;
  watched_.emplace(process_of(rank), rank);
  if (calls_ && !rank.proxy) calls_->watch().add(rank.facts.pid, protocol::rank_log(rank.folder(), rank.facts.rank));
  if (rank.facts.run.empty() || !runs_.insert(rank.facts.run).second) return;
  for (auto& [process, each] : std::exchange(unclaimed_, {})) {
    on_remote_rank(each.rank);
    if (each.end) on_remote_end(each.rank, std::move(*each.end), each.left);
  }
}

void JobRun::on_rank_change(const JobMember& rank) {
  const auto known = watched_.find(process_of(rank));
  if (known == watched_.end()) return;
  if (rank.facts.end && !known->second.facts.end) progressed_at_ = EventLoop::Clock::now();
  known->second = rank;
}

void JobRun::look_for_stops() {
  if (prompts_) prompts_->take(ending_ ? std::vector<JobMember>() : running(), launcher_->pid());
}

bool JobRun::is_watched(int rank) const {
  return std::ranges::any_of(watched_, [&](const auto& each) { return each.second.facts.rank == rank; });
}

void JobRun::begin_attempt() {
  if (has_failure() && !ending_) {
    write_message("the launcher starts the ranks again; of the attempt before:");
    std::vector<Finding> findings = judge(with_ends());
    std::erase_if(findings, [](const Finding& each) { return each.severity != Severity::fault; });
    report(as_notes(std::move(findings)));
  }
  ends_.clear();
  left_.clear();
  reports_.clear();
  first_rank_at_ = EventLoop::Clock::now();
  failed_at_ns_ = 0;
  waits_.clear();
  failed_ = warned_ = false;
  last_picture_ = {};
  progress_.clear();
}

void JobRun::take_signals() {
  while (const auto number = signals_->next())
    if (*number != SIGUSR1 && *number != SIGUSR2) on_interrupt(*number);
}

void JobRun::on_interrupt(int number) {
  if (interrupted_ == 0 && !ending_) {
    failed_before_interrupt_ = has_failure();
    const double seconds = seconds_since(progressed_at_);
    if (!failed_before_interrupt_ && is_anyone_waiting() && seconds >= options_.proof_s) {
      // The launcher has the signal, and may have ended the ranks: what they did before counts.
      const bool is_early = !last_picture_.doing.empty();
      if (!is_early) last_picture_ = picture_of(running(), kLastWordsLimit);
      verdict_ = as_notes(judge(with_ends()));
      write_message(
          fmt::format("interrupted when no collective had ended for {:.0f} s{}", seconds,
                      is_early ? fmt::format("; {:.0f} s before, this was so:", seconds_since(pictured_at_)) : ""));
    }
  }
  interrupted_ = number;
  ending_ = true;
}

// The end of a rank on another machine is heard of a little later than it is seen there.
void JobRun::on_rank_end(const JobMember& rank, SeenEnd end, const inspect::Remains& left) {
  take_signals();  // the rank may have ended by a signal that this program has, too
  const bool is_first = failed_at_ns_ == 0 || (rank.proxy && end.seen_ns != 0 && end.seen_ns < failed_at_ns_);
  end.after_failure = ending_ || (failed_ && !is_first);
  end.out_of_memory = end.out_of_memory && !end.after_failure;
  watched_.erase(process_of(rank));
  if (calls_ && !rank.proxy) calls_->watch().remove(rank.facts.pid);
  look_for_stops();
  if (is_watched(end.rank)) return;  // the launcher has started the rank again
  if (rank.proxy) left_[end.rank] = left;
  ends_[end.rank] = end;
  waits_.erase(end.rank);
  progress_.erase(end.rank);
  progressed_at_ = EventLoop::Clock::now();
  if (end.is_clean() || end.after_failure) return;
  failed_at_ns_ = is_first ? end.seen_ns : failed_at_ns_;
  if (std::exchange(failed_, true) || is_judged_elsewhere()) return;
  // The others are asked where they are, before the launcher ends them.
  std::vector<JobMember> others;
  for (const auto& [process, each] : watched_) others.push_back(each);
  last_picture_ = picture_of(others, kLastWordsLimit);
  last_picture_.unread.clear();  // those that have ended meanwhile are reported as such
}

void JobRun::plan_next_look() {
  const double limit = options_.hang_timeout_s;
  const double seconds = limit > 0 ? std::clamp(limit / 4, 0.1, 5.0) : 2.0;
  next_look_.set_after(duration_of(seconds), [this] { look_at_progress(); });
}

void JobRun::say_that_nothing_is_watched() const {
  if (ever_ranks_ || ending_) return;
  if (const std::string full = full_disk(); !full.empty())
    write_message(full + ": ranks that start here can't be watched");
  write_message(
      fmt::format("no rank has appeared within {:g} s, so a hang of this job would not be seen. It goes on, and "
                  "ranks that come later are watched. {}",
                  options_.first_rank_s, kWhoIsWatched));
}

bool JobRun::is_anyone_waiting() const {
  return std::ranges::any_of(waits_, [](const auto& each) { return each.second; });
}

void JobRun::look_at_progress() {
  plan_next_look();
  if (ending_ || is_judged_elsewhere()) return;
  // No rank runs yet, the last ones end, or ranks are stopped in a breakpoint.
  if (running().empty() || prompts_->is_anyone_stopped()) {
    progressed_at_ = EventLoop::Clock::now();
    return;
  }
  if (!failed_ && find_differing_calls()) return;
  bool has_changed = false;
  for (const auto& [rank, answer] : ask_ranks(running(), {{"request", "status"}}, kStatusLimit)) {
    if (!answer.error.empty()) continue;
    try {
      waits_[rank] = is_in_collective(answer.body);
    } catch (const json::exception&) {  // of another version of the package: nothing is known of this rank
      continue;
    }
    const std::string now = json({answer.body.value("groups", json()), answer.body.value("step", json())}).dump();
    has_changed = std::exchange(progress_[rank], now) != now || has_changed;
  }
  if (has_changed) {  // a rank that does not answer in time has the progress that it had
    progressed_at_ = next_picture_ = EventLoop::Clock::now();
    warned_ = false;
    if (!failed_) last_picture_ = {};  // of an earlier stall
    return;
  }
  on_stall(seconds_since(progressed_at_));
}

RankSet JobRun::unseen() const {
  RankSet ranks = RankSet::all(world_size_);
  for (const auto& [process, each] : watched_) ranks.erase(each.facts.rank);
  for (const auto& [rank, end] : ends_) ranks.erase(rank);
  for (const auto& [rank, host] : lost_ranks_) ranks.erase(rank);
  return ranks;
}

void JobRun::on_stall(double seconds) {
  // Hosts start their ranks seconds apart. The time to wait for those that have not come yet is not the hang's.
  const RankSet absent = unseen();
  const bool may_come = !absent.empty() && seconds_since(first_rank_at_) < options_.first_rank_s;
  const bool out_of_time = options_.hang_timeout_s > 0 && seconds >= options_.hang_timeout_s && !may_come;
  const bool waits = is_anyone_waiting() && seconds >= options_.proof_s;
  const bool noted = options_.hang_timeout_s <= 0 && seconds >= kUnprovenNote && waits && !warned_;
  if (!out_of_time && !waits) return;
  if (EventLoop::Clock::now() < next_picture_) return;
  // The look is early, since Ctrl-C in a terminal reaches the launcher at once, and the ranks are gone then.
  const bool is_early = !out_of_time && !noted && ends_.empty();
  inspect::Remains picture = picture_of(running(), is_early ? kEarlyPictureLimit : kPictureLimit);
  if (signals_->has_come()) return;  // meanwhile: it decides how the job ends, and the ranks may be gone
  last_picture_ = std::move(picture);
  pictured_at_ = EventLoop::Clock::now();
  const inspect::Remains remains = with_ends();
  std::vector<Finding> findings = judge(remains);
  // A rank that computes for long is looked at less and less often.
  const double limit = options_.hang_timeout_s > 0 ? options_.hang_timeout_s : kUnprovenNote;
  next_picture_ = progressed_at_ + duration_of(seconds < limit ? std::min(seconds * 1.5, limit) : seconds * 1.5);
  if (may_come) next_picture_ = std::min(next_picture_, first_rank_at_ + duration_of(options_.first_rank_s));
  if (!out_of_time && !is_proven_stall(findings)) {
    if (!noted) return;
    warned_ = true;
    write_message(
        fmt::format("no collective has ended for {:.0f} s. The job goes on; --hang-timeout S ends it", seconds));
    report(as_notes(std::move(findings)));
    return;
  }
  if (out_of_time && std::ranges::none_of(findings, inspect::is_fault)) {
    RankSet ranks;
    for (const auto& [process, each] : watched_) ranks.insert(each.facts.rank);
    auto finding = stall_without_collective(remains, ranks, seconds, absent);
    if (!finding) return;
    std::erase_if(findings, [](const Finding& each) { return each.verdict == Verdict::ok; });
    findings.push_back(std::move(*finding));
  }
  const int exit_code = exit_code_of_stall(findings);
  end_with(std::move(findings), exit_code,
           fmt::format("the job has made no progress for {:.1f} s; ending it", seconds));
}

void JobRun::end_with(std::vector<Finding> verdict, int exit_code, const std::string& message) {
  verdict_ = std::move(verdict);
  exit_code_ = exit_code;
  ending_ = true;
  say_verdict(/*ends=*/true);
  launcher_->signal(SIGTERM);
  write_message(message);
}

std::vector<JobMember> JobRun::running() const {
  std::vector<JobMember> ranks;
  for (const auto& [process, each] : watched_)
    if (!each.facts.end) ranks.push_back(each);
  return ranks;
}

inspect::Remains JobRun::with_ends() const {
  inspect::Remains remains = last_picture_;
  const auto add_dumps = [&](int rank) {
    // What the rank left is newer than what it answered.
    std::erase_if(remains.evidence, [&](const inspect::Evidence& each) { return each.rank == rank; });
    add_left_dumps(folder_->path(), rank, world_size_, remains);
  };
  for (const auto& [rank, each] : ends_) {
    add_end(each, remains);
    if (each.said && each.said->how == "threw") add_dumps(rank);
    add_left_log(rank, each, remains);
  }
  remains.files += static_cast<int64_t>(ends_.size());
  for (const auto& [process, each] : watched_) {
    if (!each.facts.end) continue;
    add_end({.rank = each.facts.rank, .said = each.facts.end}, remains);
    ++remains.files;
  }
  return remains;
}

void JobRun::add_left_log(int rank, const SeenEnd& end, inspect::Remains& remains) const {
  if (const auto left = left_.find(rank); left != left_.end())
    add_left(left->second, remains);
  else if (auto log = read_rank_log(folder_->path(), rank, end.pid))
    add_rank_log(std::move(*log), remains);
}

bool JobRun::has_failure() const {
  return std::ranges::any_of(ends_, [](const auto& each) { return each.second.is_known() && !each.second.is_clean(); });
}

void JobRun::take_launcher_report(const Place& place, const std::vector<SeenEnd>& failures) {
  if (failures.empty()) return;
  for (auto& [rank, end] : ends_)
    if (place_of_[rank] == place) end.after_failure = true;
  for (const SeenEnd& each : failures) {
    const auto [known, is_new] = ends_.try_emplace(each.rank, each);
    if (is_new) known->second.unseen = true;
    if (known->second.pid != each.pid) continue;
    known->second.after_failure = each.after_failure;
    if (!known->second.wait_status) known->second.wait_status = each.wait_status;
  }
}

void JobRun::take_end_of_launcher(const ProcessEnd& end) {
  for (auto& [rank, seen] : ends_) {
    if (seen.pid != launcher_->pid() || left_.contains(rank) || seen.wait_status) continue;
    seen.wait_status = end.signal != 0 ? end.signal : W_EXITCODE(end.code, 0);
    if (!seen.is_clean() && (options_.is_judged_elsewhere || is_judged_elsewhere()))
      folder_->report_end(rank, seen.pid, end.signal != 0 ? -end.signal : end.code, seen.time_s);
  }
}

void JobRun::conclude(const ProcessEnd& end) {
  look_for_ranks();
  const bool failed = end.signal != 0 || end.code != 0;
  // The end of a rank elsewhere may be on its way, with what the rank has left: after a failure it may be all that is
  // known of a rank that was too slow to answer.
  const auto is_awaited = [this](const auto& each) {
    const auto is_of_rank = [&](const inspect::Evidence& of) { return of.rank == each.second.facts.rank; };
    return each.first.first != nullptr && !(failed_ && std::ranges::any_of(last_picture_.evidence, is_of_rank));
  };
  if (!is_judged_elsewhere())
    loop_.run_until([&] { return std::ranges::none_of(watched_, is_awaited); },
                    EventLoop::Clock::now() + kLastEndsLimit);
  take_end_of_launcher(end);
  const auto is_told_later = [this](const auto& each) { return !each.second.is_known() && left_.contains(each.first); };
  if (!is_judged_elsewhere())
    loop_.run_until([&] { return std::ranges::none_of(ends_, is_told_later) || !reports_.empty(); },
                    EventLoop::Clock::now() + kReportLimit);
  take_launcher_report({nullptr, folder_->path()}, read_launcher_report(folder_->path()));
  for (const auto& [place, failures] : reports_) take_launcher_report(place, failures);
  if ((failed || has_failure() || is_judged_elsewhere() || folder_->verdict()) && take_verdict()) {
    report_last_output();
    if (exit_code_ == 0 && failed) exit_code_ = kExitFailed;
    return;
  }
  if (failed) look_for_end_by_slurm();
  report(verdict_);  // after what the launcher writes at its end
  if (exit_code_ == 0 && interrupted_ != 0 && !failed_before_interrupt_) {
    exit_code_ = kExitInterrupted;
  } else if (exit_code_ == 0 && (failed || has_failure())) {
    std::vector<Finding> findings = ends_.empty() ? std::vector<Finding>() : judge(with_ends());
    exit_code_ = exit_code_of_failure(findings);
    // Without a fault, what follows from another rank's end is all that is known.
    if (std::ranges::none_of(findings, inspect::is_fault))
      std::erase_if(findings, [](const Finding& each) { return each.verdict == Verdict::ok; });
    report(findings);
    say_that_others_are_elsewhere();
    if (failed) {
      const std::string advice = ever_ranks_ ? "" : fmt::format(". No rank could be watched. {}", kWhoIsWatched);
      write_message(fmt::format("{} {}{}", options_.launcher.front(), end.str(), advice));
    }
  }
  report_last_output();
  if (exit_code_ == 0) report_by_logs();
  const auto has_found = [this](const auto& each) { return faults_elsewhere_.contains(each); };
  if (exit_code_ == 0 && (findings_->faults_of_inspectors() > 0 || std::ranges::any_of(folders_elsewhere_, has_found)))
    exit_code_ = kExitFailed;
  // Whoever ends the job here means all of it, and ranks elsewhere may never come to a call that fails. Those there may
  // not have read what was said of it before.
  say_verdict(/*ends=*/ending_);
}

void JobRun::report_last_output() const {
  if (!output_tail_ || exit_code_ == 0) return;
  std::map<int, int> ranks;
  for (const JobMember& each : folder_->read().ranks) ranks[each.facts.local_rank] = each.facts.rank;
  std::fputs(output_tail_->text(ranks).c_str(), stderr);
}

void JobRun::report_by_logs() {
  inspect::Remains remains;
  for (const auto& [rank, each] : ends_) {
    if (!left_.contains(rank)) add_left_dumps(folder_->path(), rank, world_size_, remains);
    add_left_log(rank, each, remains);
  }
  if (std::vector<Finding> findings = differing_calls_of(remains); !findings.empty()) {
    report(findings);
    exit_code_ = kExitFailed;
    return;
  }
  if (auto finding = straggler_of_job(remains.evidence)) report({*finding});
}

void JobRun::report(const std::vector<Finding>& findings) const {
  findings_->report(findings, seconds_since(started_));
}

}  // namespace lockstep::shell
