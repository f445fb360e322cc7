// What `lockstep run -- LAUNCHER…` does about machines besides its own: it asks their relays, claims the ranks there that
// belong to the job, and gives or takes the verdict over all of them.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>

#include "collectives/log/call_digests.h"
#include "inspectors/findings/about.h"
#include "inspectors/remains/judge.h"
#include "inspectors/remains/verdicts.h"
#include "shell/events/exit_code.h"
#include "shell/jobs/agent_client.h"
#include "shell/jobs/job_logs.h"
#include "shell/jobs/job_picture.h"
#include "shell/jobs/job_run.h"
#include "shell/jobs/stall.h"
#include "shell/text/text_output.h"

namespace lockstep::shell {
namespace {

using namespace std::chrono_literals;

constexpr std::chrono::milliseconds kRelaysLimit = 15s, kJudgeLimit = 15s, kVerdictLimit = 60s, kDigestsLimit = 2s;
constexpr size_t kMostHosts = 6;  // that a message names

/// Adds to each finding on which machines its ranks are, where the job has several.
void name_hosts(const std::map<int, std::string>& host_of, std::vector<Finding>& findings) {
  std::set<std::string> all;
  for (const auto& [rank, host] : host_of) all.insert(host);
  if (all.size() < 2) return;
  for (Finding& finding : findings) {
    std::map<std::string, RankSet> ranks_of;
    for (const int rank : finding.ranks)
      if (const auto known = host_of.find(rank); known != host_of.end()) ranks_of[known->second].insert(rank);
    std::string text;
    size_t named = 0;
    for (const auto& [host, ranks] : ranks_of) {
      if (++named > kMostHosts) break;
      text += fmt::format("{}{} on {}", text.empty() ? "; " : ", ", ranks.words(), host);
    }
    if (ranks_of.size() > kMostHosts) text += fmt::format(" and {} more hosts", ranks_of.size() - kMostHosts);
    finding.message += text;
  }
}

/// Returns "default_pg" for "0".
std::string name_of_group(const inspect::Remains& remains, const std::string& group) {
  for (const inspect::Evidence& each : remains.evidence)
    if (const auto* known = each.group(group); known && !known->description.empty()) return known->description;
  return group;
}

/// Returns "train.py:43"; empty where the log of the rank does not have the entry any more.
std::string place_of_call(const inspect::Remains& remains, int rank, uint64_t entry) {
  for (const inspect::Evidence& each : remains.evidence)
    if (each.rank == rank && each.source == inspect::EvidenceSource::collective_log)
      for (const inspect::EvidenceCall& call : each.calls)
        if (call.record == static_cast<int64_t>(entry) && !call.frames.empty())
          return fmt::format("{}:{}", std::filesystem::path(call.frames.front().file).filename().string(),
                             call.frames.front().line);
  return "";
}

}  // namespace

void JobRun::start_relays() {
  if (!options_.hosts.empty()) calls_ = std::make_unique<CallJudge>(loop_, [this] { return running(); });
  for (const Host& each : options_.hosts)
    hosts_.push_back(RemoteHost::start(loop_, each, options_.remote_program, /*hub=*/"", listener_of_host()));
  // The job may end a moment after it has begun.
  const auto is_starting = [](const auto& host) { return host->state() == RemoteHost::State::starting; };
  loop_.run_until([&] { return std::ranges::none_of(hosts_, is_starting); }, EventLoop::Clock::now() + kRelaysLimit);
}

RemoteHost::Listener JobRun::listener_of_host() {
  return {.seen = [this](const JobMember& rank) { on_remote_rank(rank); },
          .ended = [this](const JobMember& rank, SeenEnd end,
                          const inspect::Remains& left) { on_remote_end(rank, std::move(end), left); },
          .faults = [this](const RemoteHost& host, const std::string& folder,
                           int count) { faults_elsewhere_[{&host, folder}] = count; },
          .report = [this](const RemoteHost& host, const std::string& folder,
                           const std::vector<SeenEnd>& ends) { reports_[{&host, folder}] = ends; },
          .changed = [this](const RemoteHost& host) { on_host_change(host); },
          .session =
              [this](FromRelay&& message, std::vector<std::string> frames) {
                if (const auto* warning = std::get_if<RelayWarning>(&message)) write_message(warning->text);
                const auto* calls = std::get_if<CallsMade>(&message);
                if (calls && !frames.empty()) calls_->take(unpacked(*calls, frames.front()));
              }};
}

void JobRun::on_host_change(const RemoteHost& host) {
  using State = RemoteHost::State;
  if (host.state() == State::heard) {
    if (told_silent_.erase(&host) > 0) write_message(host.answers_again());
    const bool is_second = machines_.try_emplace(host.machine(), &host).first->second != &host;
    if (is_second || (host.is_here() && !options_.asks_own_relay))
      std::erase_if(hosts_, [&](const auto& each) { return each.get() == &host; });
    return;
  }
  told_silent_.insert(&host);
  RankSet ranks;
  for (const auto& [process, each] : watched_)
    if (process.first == &host) ranks.insert(each.facts.rank);
  write_message(fmt::format("host {}: {}; {} not seen{}", host.name(), host.absence(),
                            ranks.empty() ? "its ranks are" : ranks.words() + (ranks.size() > 1 ? " are" : " is"),
                            host.state() == State::lost ? " any more" : " meanwhile"));
  if (host.state() == State::lost) {
    for (const int each : ranks) lost_ranks_[each] = &host;
    std::erase_if(watched_, [&](const auto& each) { return each.first.first == &host; });
    std::erase_if(unclaimed_, [&](const auto& each) { return each.first.first == &host; });
  }
}

bool JobRun::is_of_job(const JobMember& rank) const {
  return rank.facts.watch == std::filesystem::path(folder_->path()).filename().string() ||
         runs_.contains(rank.facts.run);
}

void JobRun::on_remote_rank(const JobMember& rank) {
  const auto host = std::dynamic_pointer_cast<RemoteHost>(rank.proxy);
  // The relay of this machine sees the ranks of this process's folder as well.
  if (host->is_here() && rank.folder() == folder_->path()) return;
  if (watched_.contains(process_of(rank))) {
    on_rank_change(rank);
    look_for_stops();
    return;
  }
  if (!is_of_job(rank)) {
    unclaimed_[process_of(rank)].rank = rank;
    return;
  }
  if (folders_elsewhere_.emplace(host.get(), rank.folder()).second) host->judge(rank.folder());
  on_rank(rank);
}

void JobRun::on_remote_end(const JobMember& rank, SeenEnd end, const inspect::Remains& left) {
  if (watched_.contains(process_of(rank))) {
    on_rank_end(rank, std::move(end), left);
  } else if (const auto known = unclaimed_.find(process_of(rank)); known != unclaimed_.end()) {
    known->second.end = std::move(end);
    known->second.left = left;
  }
}

std::vector<Finding> JobRun::judge(const inspect::Remains& remains) const {
  std::vector<Finding> findings = inspect::judge(remains);
  add_lost_hosts(findings);
  name_hosts(host_of_, findings);
  return findings;
}

std::vector<Finding> JobRun::differing_calls_of(const inspect::Remains& remains) const {
  std::vector<Finding> findings = judge(remains);
  std::erase_if(findings, [](const Finding& each) { return each.inspector != inspect::judging::kComparison; });
  return findings;
}

bool JobRun::find_differing_calls() {
  if (calls_ && calls_->has_told_lately()) return false;
  const std::vector<JobMember> ranks = running();
  std::map<int, std::vector<dist::CallDigests>> digests;
  std::vector<JobMember> elsewhere;
  for (const JobMember& each : ranks)
    if (const auto host = std::dynamic_pointer_cast<RemoteHost>(each.proxy); host && host->answers())
      elsewhere.push_back(each);
  if (elsewhere.empty()) return false;
  for (const auto& [rank, answer] : ask_ranks(elsewhere, {{"request", kDigestsRequest}}, kDigestsLimit))
    if (answer.error.empty()) digests[rank] = answer.body.value("digests", std::vector<dist::CallDigests>());
  for (const JobMember& each : ranks)
    if (!each.proxy) digests[each.facts.rank] = read_call_digests(each.folder(), each.facts.rank, each.facts.pid);
  const auto differing = dist::differing_calls(digests);
  auto transfers = differing.empty() ? dist::differing_transfers(digests) : std::vector<dist::DifferingTransfer>();
  if (differing.empty() && transfers.empty()) return false;
  inspect::Remains picture = picture_of(ranks, kDigestsLimit);
  if (signals_->has_come()) return false;
  last_picture_ = std::move(picture);
  std::vector<Finding> findings = differing.empty() ? std::vector<Finding>() : differing_calls_of(with_ends());
  Finding finding =
      inspect::About{.inspector = inspect::judging::kComparison, .object = {}, .step = {}, .ranks = {}}.finding(
          Severity::fault, Verdict::op_mismatch);
  if (differing.empty()) {
    dist::DifferingTransfer& transfer = transfers.front();
    transfer.group = name_of_group(last_picture_, transfer.group);
    finding.ranks = RankSet({transfer.sent.from, transfer.sent.to});
    finding.message = transfer.str(place_of_call(last_picture_, transfer.sent.from, transfer.sent.entry),
                                   place_of_call(last_picture_, transfer.sent.to, transfer.expected.entry));
    findings.push_back(std::move(finding));
    name_hosts(host_of_, findings);
  } else if (findings.empty()) {  // the logs have gone on since
    for (const auto& [rank, each] : digests) finding.ranks.insert(rank);
    finding.message = differing.front().str();
    findings.push_back(std::move(finding));
  }
  end_with(std::move(findings), kExitFailed,
           differing.empty() ? "a rank does not send what another one expects; ending the job"
                             : "ranks on different machines have called different collectives; ending the job");
  return true;
}

void JobRun::add_lost_hosts(std::vector<Finding>& findings) const {
  std::vector<Finding> lost;
  RankSet all;
  for (const auto& host : hosts_) {
    if (host->answers()) continue;
    RankSet ranks;
    for (const auto& [rank, of] : lost_ranks_)
      if (of == host.get()) ranks.insert(rank);
    for (const auto& [process, member] : watched_)
      if (process.first == host.get()) ranks.insert(member.facts.rank);
    if (ranks.empty()) continue;
    all = all | ranks;
    lost.push_back(
        {.severity = Severity::fault,
         .inspector = "hang",
         .verdict = Verdict::dead,
         .ranks = ranks,
         .kind = FindingKind::died,
         .message = fmt::format("host {} is lost with {}: {}", host->name(), ranks.words(), host->absence())});
  }
  if (lost.empty()) return;
  // That ranks of a lost host are waited for follows from its loss. What is known of other ranks may be its cause.
  const bool is_cause = std::ranges::none_of(findings, [&](const Finding& each) {
    return inspect::is_fault(each) && !(each.verdict == Verdict::hang && (each.ranks - all).empty());
  });
  if (is_cause) {
    findings = as_notes(std::move(findings));
    std::erase_if(findings, [](const Finding& each) { return each.verdict == Verdict::ok; });
  } else {
    lost = as_notes(std::move(lost));
  }
  std::ranges::move(lost, std::back_inserter(findings));
}

bool JobRun::is_judged_elsewhere() const { return folder_->judge().has_value(); }

void JobRun::say_if_judge_is_silent() {
  const auto judge = folder_->judge();
  if (!judge || judge->is_silent == told_judge_silent_) return;
  told_judge_silent_ = judge->is_silent;
  write_message(judge->is_silent
                    ? fmt::format("no word for 10 s from `lockstep run` on {}, which judges this job: this one does if "
                                  "that lasts for 120 s",
                                  judge->host)
                    : fmt::format("`lockstep run` on {} answers again", judge->host));
}

bool JobRun::take_verdict() {
  const auto has_verdict = [this] { return folder_->verdict().has_value(); };
  const auto is_judged = [&] { return interrupted_ != 0 || has_verdict() || is_judged_elsewhere(); };
  if (options_.is_judged_elsewhere) loop_.run_until(is_judged, EventLoop::Clock::now() + kJudgeLimit);
  if (const auto judge = folder_->judge()) {  // whose relay ends with it
    const Descriptor relay = open_process(judge->relay);
    bool is_gone = !relay;
    if (relay) loop_.watch(relay.get(), [&] { is_gone = true; });
    loop_.run_until([&] { return is_gone || interrupted_ != 0 || has_verdict(); },
                    EventLoop::Clock::now() + kVerdictLimit);
    if (relay) loop_.forget(relay.get());
  }
  const auto verdict = folder_->verdict();
  if (!verdict) return false;
  exit_code_ = verdict->exit_code;
  if (exit_code_ != 0) write_message(fmt::format("the verdict is that of `lockstep run` on {}", verdict->host));
  return true;
}

void JobRun::look_for_end_by_slurm() {
  // A `lockstep run` in each task of a step would say it as often.
  if (options_.is_judged_elsewhere || (interrupted_ == 0 && ending_)) return;
  const std::string words = slurm_end().words;
  if (words.empty()) return;
  write_message(words);
  const auto failed_first = [](const auto& each) {
    return each.second.is_known() && !each.second.is_clean() && !each.second.after_failure;
  };
  const auto was_ended = [&](const auto& each) { return failed_first(each) && each.second.wait_status == SIGTERM; };
  if (interrupted_ != 0 && !failed_before_interrupt_) return;
  if (std::ranges::none_of(ends_, was_ended)) {
    // Processes that Slurm has ended on another machine may have left nothing, and ranks here failed for want of them.
    RankSet failed;
    for (const auto& each : ends_)
      if (failed_first(each)) failed.insert(each.first);
    const auto names_one = [&](const Finding& each) {
      return inspect::is_fault(each) && !(each.ranks & failed).empty();
    };
    if (std::ranges::any_of(judge(with_ends()), names_one)) return;
  }
  if (interrupted_ == 0) interrupted_ = SIGTERM;
  failed_before_interrupt_ = false;
}

void JobRun::say_verdict(bool ends) {
  for (const auto& [host, folder] : folders_elsewhere_) host->say_verdict(folder, exit_code_, ends);
}

void JobRun::say_that_others_are_elsewhere() const {
  if (!options_.hosts.empty() || host_of_.empty() || static_cast<int>(host_of_.size()) >= world_size_) return;
  RankSet others = RankSet::all(world_size_);
  for (const auto& [rank, host] : host_of_) others.erase(rank);
  if (is_of_this_machine_alone_) return;
  write_message(
      fmt::format("{} {} not seen here. If they run on other machines, name these with --hosts: one verdict covers "
                  "all ranks then (docs/clusters.md)",
                  others.words(), others.size() == 1 ? "was" : "were"));
}

}  // namespace lockstep::shell
