#include "shell/jobs/job_group.h"

#include <fmt/format.h>
#include <sys/inotify.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "protocol/error.h"
#include "protocol/runtime_folder.h"
#include "shell/jobs/agent_client.h"
#include "shell/jobs/job_words.h"
#include "shell/processes/launcher.h"

namespace lockstep::shell {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kConnectLimit{10};
constexpr milliseconds kAgentLimit{2000};
constexpr milliseconds kLeaveLimit{500};
constexpr seconds kShutdownLimit{2};
constexpr milliseconds kGatherArrivals{50};  // ranks that come together are announced together
// A connection that ends is that of a rank that goes on, or of a process that dies: how is known in a moment, or when its
// core file is written.
constexpr milliseconds kDeathIsKnown{200};

}  // namespace

JobGroup::JobGroup(EventLoop& loop, Job job, SessionDirectory& directory, Listener listener)
    : loop_(loop), job_(std::move(job)), directory_(directory), listener_(std::move(listener)) {
  hub_ = std::make_unique<Hub>(directory_.hub_endpoint());
  ranks_ = std::vector<Rank>(static_cast<size_t>(job_.world_size()));
  loop_.watch(hub_->socket(), [this] { receive(); });
  loop_.watch(hub_->monitor(), [this] { look_at_connections(); });
  watch_folders();
  look_for_ranks();
}

JobGroup::~JobGroup() {
  ending_ = true;
  loop_.forget(hub_->socket());
  loop_.forget(hub_->monitor());
  if (new_files_) loop_.forget(new_files_.get());
  if (announcement_) loop_.cancel(*announcement_);
  for (Rank& rank : ranks_) {
    if (rank.burial) loop_.cancel(*rank.burial);
    if (rank.process) loop_.forget(rank.process.get());
  }
}

/// A rank that starts its agent later has a file there then.
void JobGroup::watch_folders() {
  new_files_ = Descriptor(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
  if (!new_files_) return;  // ranks that come later are not seen then
  for (const std::string& folder : job_.folders) ::inotify_add_watch(new_files_.get(), folder.c_str(), IN_MOVED_TO);
  loop_.watch(new_files_.get(), [this] {
    alignas(inotify_event) char events[4096];
    while (::read(new_files_.get(), events, sizeof events) > 0) {
    }
    look_for_ranks();
  });
}

void JobGroup::look_for_ranks() {
  for (Job& each : read_jobs(protocol::runtime_directories()))
    if (each.id == job_.id) job_ = std::move(each);
  for (const JobMember& member : job_.ranks) {
    const int number = member.facts.rank;
    if (!member.is_alive || number >= world_size() || at(number).process || at(number).ended) continue;
    watch_process(number, member.facts.pid);
    if (at(number).process && invite(number)) expected_.insert(number);
  }
}

void JobGroup::watch_process(int number, int64_t pid) {
  Rank& rank = at(number);
  rank.process = Descriptor(static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(pid), 0)));
  if (!rank.process) return;
  rank.info.pid = static_cast<pid_t>(pid);
  loop_.watch(rank.process.get(), [this, number] { process_ended(number); });
}

bool JobGroup::invite(int number) {
  const JobMember* member = job_.rank(number);
  if (at(number).left_alone || !member) return false;
  const std::string hub = directory_.hub_endpoint().substr(std::string("ipc://").size());
  try {
    const auto answer = ask_agent(
        member->socket, {{"request", "serve"}, {"hub", hub}, {"identity", hub_->expect(number)}}, kAgentLimit);
    return answer.contains("stopped") && !answer["stopped"].is_null();
  } catch (const AgentError& error) {
    if (!at(number).ended && listener_.warning)
      listener_.warning(fmt::format("rank {} can't be asked to come: {}", number, error.what()));
    return false;
  }
}

void JobGroup::wait_connected() {
  const auto connected = [&] {
    return std::all_of(expected_.begin(), expected_.end(),
                       [&](int each) { return rank(each).state != RankInfo::State::starting; });
  };
  loop_.run_until([&] { return !start_error_.empty() || connected(); }, EventLoop::Clock::now() + kConnectLimit);
  if (!start_error_.empty()) throw StartError("the prompt could not open: " + start_error_);
  starting_ = false;
  arrivals_ = {};
}

void JobGroup::make_ready(const std::string& prelude, const Versions&) {
  prelude_ = prelude;
  hub_->send(live(), protocol::Prelude{prelude_});
}

void JobGroup::receive() {
  constexpr int kAtOnce = 256;
  for (int i = 0; i < kAtOnce; ++i)
    if (!receive_one()) break;
  look_at_connections();
}

void JobGroup::look_at_connections() {
  hub_->take_connection_events();
  for (int r = 0; r < world_size(); ++r)
    if (hub_->connection_ended(r) && rank(r).state == RankInfo::State::ready) connection_ended(r);
}

bool JobGroup::receive_one() {
  try {
    auto from = hub_->receive();
    if (!from) return false;
    if (from->rank >= 0) handle(*from);
  } catch (const BadMessage& error) {
    if (listener_.warning)
      listener_.warning(fmt::format("rank {} sent what can't be read: {}; it is left alone", error.rank, error.what()));
    kill(error.rank);
  }
  return true;
}

void JobGroup::handle(FromWorker& from) {
  Rank& rank = at(from.rank);
  if (rank.info.state == RankInfo::State::dead) return;
  if (const auto* hello = std::get_if<protocol::Hello>(&from.message)) {
    rank.info.hello = *hello;
    rank.info.host = hello->host;
    rank.info.device = hello->device;
    if (hello->versions.protocol != kProtocolVersion || hello->versions.lockstep != kVersion) {
      const std::string what = fmt::format(
          "rank {} has the package lockstep {} (protocol {}), and this shell is {} (protocol {}): install the wheel of "
          "this shell's tree (tools/wheel)",
          from.rank, hello->versions.lockstep, hello->versions.protocol, kVersion, kProtocolVersion);
      if (starting_) start_error_ = what;
      kill(from.rank);
    }
  } else if (const auto* ready = std::get_if<protocol::Ready>(&from.message)) {
    rank.info.threads = ready->threads;
    rank.info.state = RankInfo::State::ready;
    expected_.erase(from.rank);
    if (!prelude_.empty()) hub_->send(from.rank, protocol::Prelude{prelude_});
    arrived(from.rank);
  } else if (const auto* refusal = std::get_if<protocol::NotReady>(&from.message)) {
    if (starting_)
      start_error_ = fmt::format("rank {}: {}", from.rank, refusal->message);
    else if (listener_.warning)
      listener_.warning(fmt::format("rank {}: {}", from.rank, refusal->message));
  } else if (listener_.message) {
    listener_.message(from);
  }
}

void JobGroup::arrived(int number) {
  if (starting_) return;
  arrivals_.insert(number);
  if (announcement_) return;
  announcement_ = loop_.at(EventLoop::Clock::now() + kGatherArrivals, [this] {
    announcement_.reset();
    const RankSet here = std::exchange(arrivals_, {}) & live();
    if (!here.empty() && listener_.warning) listener_.warning(places(here));
  });
}

/// All that the rank had sent before has arrived.
void JobGroup::connection_ended(int number) {
  Rank& rank = at(number);
  if (rank.burial) return;
  if (rank.ended || resumed_.contains(number)) return bury(number);
  await_death(number);
}

void JobGroup::await_death(int number) {
  at(number).burial = loop_.at(EventLoop::Clock::now() + kDeathIsKnown, [this, number] {
    const Rank& rank = at(number);
    if (!rank.ended && rank.process && is_ending(rank.info.pid))
      await_death(number);
    else
      bury(number);
  });
}

void JobGroup::process_ended(int number) {
  Rank& rank = at(number);
  if (std::exchange(rank.ended, true)) return;
  const SeenEnd end = end_of(number);
  rank.how_ended = end.words();
  rank.end_signal = end.wait_status && WIFSIGNALED(*end.wait_status) ? WTERMSIG(*end.wait_status) : 0;
  loop_.forget(rank.process.get());
  hub_->take_connection_events();
  if (rank.info.state == RankInfo::State::ready && !hub_->connection_ended(number) && !rank.burial) {
    await_death(number);
    look_at_connections();
    return;
  }
  bury(number);
}

SeenEnd JobGroup::end_of(int number) const {
  SeenEnd end{.rank = number, .wait_status = wait_status_of_zombie(rank(number).pid)};
  for (const std::string& folder : job_.folders)
    if (const Job job = read_job(folder); const JobMember* member = job.rank(number))
      if (member->facts.pid == rank(number).pid && member->facts.end) end.said = member->facts.end;
  return end;
}

void JobGroup::bury(int number) {
  Rank& rank = at(number);
  if (const auto burial = std::exchange(rank.burial, std::nullopt)) loop_.cancel(*burial);
  // What it had sent has arrived by now, and may still be in the queue.
  for (size_t left = hub_->arrived(); left > 0 && receive_one(); --left) {
  }
  const bool was_here = rank.info.state == RankInfo::State::ready, was_let_go = resumed_.contains(number);
  resumed_.erase(number);
  expected_.erase(number);
  rank.info.state = rank.ended ? RankInfo::State::dead : RankInfo::State::starting;
  if (ending_) return;
  if (was_here && !was_let_go) {
    protocol::CellError error;
    error.type = rank.end_signal ? signal_name(rank.end_signal) : "exit";
    error.message = rank.ended ? rank.how_ended : "the rank goes on with its program";
    listener_.died(number, error);
  } else if (rank.ended && listener_.warning) {
    listener_.warning(fmt::format("rank {} {}", number, rank.how_ended));
  }
  if (!rank.ended && invite(number)) expected_.insert(number);
  look_at_connections();
}

RankSet JobGroup::live() const {
  RankSet result;
  for (int r = 0; r < world_size(); ++r)
    if (rank(r).state == RankInfo::State::ready && !ranks_[static_cast<size_t>(r)].ended && !resumed_.contains(r))
      result.insert(r);
  return result;
}

RankSet JobGroup::away() const {
  RankSet result;
  for (int r = 0; r < world_size(); ++r) {
    const Rank& each = ranks_[static_cast<size_t>(r)];
    if (!each.ended && (each.info.state == RankInfo::State::starting || resumed_.contains(r))) result.insert(r);
  }
  return result;
}

std::string JobGroup::absence(int number) const {
  const Rank& rank = ranks_.at(static_cast<size_t>(number));
  if (rank.ended) return rank.how_ended;
  return rank.left_alone ? "was left alone" : "is not at a breakpoint";
}

std::string JobGroup::places(const RankSet& ranks) const {
  std::map<int, std::string> lines;
  const std::map<int, std::string> activities = activities_of(members(ranks & away()), kAgentLimit);
  for (const int each : ranks) {
    const RankInfo& info = rank(each);
    std::string text = "not at a breakpoint";
    if (live().contains(each))
      text = "stopped at " + info.hello.where;
    else if (ranks_[static_cast<size_t>(each)].ended)
      text = ranks_[static_cast<size_t>(each)].how_ended;
    else if (const auto found = activities.find(each); found != activities.end())
      text += "; " + found->second;
    else if (info.pid == 0)
      text += "; it " + job_.absence_of(each);
    lines[each] = text;
  }
  std::string result = by_text(lines, ": ");
  if (!(ranks & live()).empty() && !(ranks & away()).empty())
    return result +
           "A rank that waits for a stopped one in a collective does so until its group's time-out ends it, by default "
           "10 minutes with NCCL and 30 with Gloo; init_process_group(timeout=...) sets it";
  if (result.ends_with('\n')) result.pop_back();
  return result;
}

std::vector<JobMember> JobGroup::members(const RankSet& ranks) const {
  std::vector<JobMember> result;
  for (const JobMember& member : job_.ranks) {
    const int number = member.facts.rank;
    if (ranks.contains(number) && member.is_alive && number < world_size() &&
        !ranks_[static_cast<size_t>(number)].ended)
      result.push_back(member);
  }
  return result;
}

std::string JobGroup::stop_between_steps() {
  // Ranks that train together are at most a step apart. They go on while they are asked, so the step has to be ahead of
  // all of them; where it is not, it is taken back and a later one is tried.
  constexpr int kTries = 8;
  const std::vector<JobMember> ranks = members(away());
  RankSet asked;
  for (const JobMember& member : ranks) asked.insert(member.facts.rank);
  if (const RankSet others = away() - asked; !others.empty()) {
    const bool one = others.size() == 1;
    return fmt::format(
        "{} can't be asked from here: {} on another machine, or {} not called this package yet. All ranks stop after "
        "the same step, or none; lockstep.breakpoint() in the program works on each machine by itself",
        others.words(), one ? "it runs" : "they run", one ? "has" : "have");
  }
  int64_t margin = 2;
  for (int attempt = 0; attempt < kTries; ++attempt, margin *= 4) {
    int64_t newest = 0;
    for (const auto& [number, answer] : ask_ranks(ranks, {{"request", "stop_at"}}, kAgentLimit)) {
      if (!answer.error.empty()) return fmt::format("rank {} does not answer: {}", number, answer.error);
      if (answer.body.at("step").is_null())
        return fmt::format(
            "rank {} counts no training steps: lockstep.step() in the loop, or lockstep.watch(model, optimizer) before "
            "it, makes each step a point at which a cell can run",
            number);
      newest = std::max(newest, answer.body.at("step").get<int64_t>());
    }
    bool late = false;
    std::string problem;
    for (const auto& [number, answer] :
         ask_ranks(ranks, {{"request", "stop_at"}, {"step", newest + margin}}, kAgentLimit)) {
      late = late || answer.body.value("late", !answer.error.empty());
      if (!answer.error.empty()) problem = fmt::format("rank {} does not answer: {}", number, answer.error);
    }
    if (!late) return "";
    // A rank for which the step was not late may be there already.
    const RankSet stays = take_stop_back({});
    if (!stays.empty()) return stays.words() + " did not go on from the step that was tried first; try again";
    if (!problem.empty()) return problem;
  }
  return "the ranks' steps are too short to stop them all after the same one";
}

RankSet JobGroup::take_stop_back(RankSet early) {
  for (const auto& [number, answer] : ask_ranks(members(away()), {{"request", "stop_at"}}, kAgentLimit))
    if (answer.error.empty() && !answer.body.at("stopped").is_null()) early.insert(number);
  const auto all = [&](const auto& condition) {
    return [&early, condition, this] {
      return std::all_of(early.begin(), early.end(), [&](int each) { return at(each).ended || condition(each); });
    };
  };
  loop_.run_until(all([this](int each) { return live().contains(each); }), EventLoop::Clock::now() + kConnectLimit);
  resume(early);
  const auto gone = [this](int each) { return !resumed_.contains(each) && !live().contains(each); };
  loop_.run_until(all(gone), EventLoop::Clock::now() + kConnectLimit);
  RankSet stays;
  for (const int each : early)
    if (!at(each).ended && !gone(each)) stays.insert(each);
  return stays;
}

void JobGroup::resume(const RankSet& ranks) {
  const RankSet meant = ranks & live();
  hub_->send(meant, protocol::Shutdown{});
  resumed_ = resumed_ | meant;
}

void JobGroup::kill(int number) {
  Rank& rank = at(number);
  if (std::exchange(rank.left_alone, true) || rank.info.state != RankInfo::State::ready) return;
  // It ends its connection when the cell that it is in has ended.
  hub_->send(number, protocol::Shutdown{});
  protocol::CellError error;
  error.type = "left";
  error.message = "the rank is left alone: it goes on with its program when the cell ends";
  rank.info.state = RankInfo::State::starting;
  if (!starting_ && !ending_) listener_.died(number, error);
}

void JobGroup::shutdown() {
  ending_ = true;
  // A rank that stops later waits for another shell, and says so.
  const std::string hub = directory_.hub_endpoint().substr(std::string("ipc://").size());
  ask_ranks(members(away()), {{"request", "take_back"}, {"hub", hub}}, kLeaveLimit);
  resume(live());
  loop_.run_until(
      [&] {
        return resumed_.empty() || std::all_of(resumed_.begin(), resumed_.end(),
                                               [&](int each) { return rank(each).state != RankInfo::State::ready; });
      },
      EventLoop::Clock::now() + kShutdownLimit);
}

}  // namespace lockstep::shell
