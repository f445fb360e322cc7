#include "shell/jobs/job_group.h"

#include <fmt/format.h>
#include <sys/inotify.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "collectives/log/process_identity.h"
#include "protocol/error.h"
#include "protocol/files.h"
#include "protocol/runtime_folder.h"
#include "shell/jobs/agent_client.h"
#include "shell/jobs/find_job.h"
#include "shell/jobs/job_words.h"
#include "shell/processes/launcher.h"

namespace lockstep::shell {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kConnectLimit{10};
constexpr milliseconds kAgentLimit{2000};
constexpr milliseconds kLeaveLimit{500};
constexpr milliseconds kGatherArrivals{50};  // ranks that come together are announced together
// A connection that ends is that of a rank that goes on, or of a process that dies: how is known in a moment, or when its
// core file is written.
constexpr milliseconds kDeathIsKnown{200};

}  // namespace

JobGroup::JobGroup(EventLoop& loop, Job job, int world_size, std::unique_ptr<JobHosts> hosts,
                   SessionDirectory& directory, Listener listener)
    : RankGroup(loop, directory.hub_endpoint(), world_size, std::move(listener)),
      job_(std::move(job)),
      hosts_(std::move(hosts)),
      members_(static_cast<size_t>(world_size)),
      announcement_(loop) {
  watch_folders();
  if (hosts_) {
    hosts_->changed = [this] { look_for_ranks(); };
    hosts_->ended = [this](const JobMember& member, const SeenEnd& end) { ended_elsewhere(member, end); };
  }
  look_for_ranks();
}

JobGroup::~JobGroup() {
  if (new_files_) loop_.forget(new_files_.get());
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

void JobGroup::add_elsewhere(std::vector<Job>& jobs) const {
  if (hosts_) add_ranks_elsewhere(hosts_->ranks(), jobs);
}

void JobGroup::look_for_ranks() {
  std::vector<Job> found = {job_};
  for (Job& each : read_jobs(protocol::runtime_directories()))
    if (each.id == job_.id) found.front() = std::move(each);
  add_elsewhere(found);
  job_ = std::move(found.front());
  if (owns_processes()) return;  // they come without being asked
  for (const JobMember& member : job_.ranks) {
    const int number = member.facts.rank;
    if (!member.is_alive || number >= world_size()) continue;
    Member& known = members_[static_cast<size_t>(number)];
    if (known.is_known) continue;
    const auto pid = static_cast<pid_t>(member.facts.pid);
    if (!member.proxy) known.process = open_process(pid);
    known.is_known = member.proxy || known.process;
    if (!known.is_known) continue;
    at(number).info.host = member.facts.host;
    if (member.proxy)
      at(number).info.pid = pid;
    else
      watch_process(number, pid, known.process.get());
    if (invite(number)) expected_.insert(number);
  }
}

void JobGroup::ended_elsewhere(const JobMember& member, const SeenEnd& end) {
  const int number = member.facts.rank;
  if (number >= world_size() || rank(number).pid != member.facts.pid) return;
  members_[static_cast<size_t>(number)].end = end;
  process_ended(number);
}

bool JobGroup::invite(int number) {
  const JobMember* member = job_.rank(number);
  if (members_[static_cast<size_t>(number)].left_alone || !member) return false;
  try {
    const json request = {{"request", "serve"}, {"hub", hub_path_of(*member)}, {"identity", hub_.expect(number)}};
    const AgentAnswer answer = ask_ranks({*member}, request, kAgentLimit).at(number);
    if (!answer.error.empty()) throw AgentError(answer.error);
    return answer.body.contains("stopped") && !answer.body["stopped"].is_null();
  } catch (const AgentError& error) {
    if (!at(number).end) listener_.warning(fmt::format("rank {} can't be asked to come: {}", number, error.what()));
    return false;
  }
}

void JobGroup::wait_connected() {
  serve_start([&] { return expected_.empty(); }, kConnectLimit, "the prompt could not open: ");
  starting_ = false;
}

void JobGroup::make_ready(const std::string& prelude, const Versions&) {
  prelude_ = prelude;
  send_prelude(live());
}

void JobGroup::send_prelude(const RankSet& ranks) {
  for (const int each : ranks) {
    const JobMember* const member = job_.rank(each);
    if (!member || !member->proxy) {
      hub_.send(each, protocol::Prelude{prelude_});
      continue;
    }
    if (!prelude_bytes_)
      prelude_bytes_ = std::make_shared<const std::string>(protocol::read_file(prelude_).value_or(""));
    hub_.send(each, protocol::Prelude{member->proxy->put("prelude", prelude_bytes_)});
  }
}

void JobGroup::give_up(int number, const std::string& why) {
  listener_.warning(fmt::format("rank {} sent what can't be read: {}; it is left alone", number, why));
  kill(number);
}

void JobGroup::came(int number) {
  if (rank(number).state == State::ready) {
    expected_.erase(number);
    if (!prelude_.empty()) send_prelude({number});
    if (!starting_) announce(number);
    return;
  }
  const Versions& versions = rank(number).hello.versions;
  if (versions.protocol == kProtocolVersion && versions.lockstep == kVersion) return;
  if (starting_)
    start_error_ = fmt::format(
        "rank {} has the package lockstep {} (protocol {}), and this shell is {} (protocol {}): install the wheel of "
        "this shell's tree (tools/wheel)",
        number, versions.lockstep, versions.protocol, kVersion, kProtocolVersion);
  kill(number);
}

void JobGroup::announce(int number) {
  arrivals_.insert(number);
  if (announcement_.is_set()) return;
  announcement_.set_after(kGatherArrivals, [this] {
    const RankSet here = std::exchange(arrivals_, {}) & live();
    if (!here.empty()) listener_.warning(places(here));
  });
}

void JobGroup::disconnected(int number) {
  const State state = rank(number).state;
  if (state == State::leaving)
    bury(number);
  else if (state == State::ready && !at(number).burial.is_set())
    await_death(number);
}

void JobGroup::await_death(int number) {
  at(number).burial.set_after(kDeathIsKnown, [this, number] {
    const JobMember* const member = job_.rank(number);
    if (!(member && member->proxy) && is_ending(rank(number).pid))
      await_death(number);
    else
      bury(number);
  });
}

/// Asked as soon as the process has ended, before its parent asks.
std::optional<RankExit> JobGroup::take_end(int number) {
  const JobMember* const member = job_.rank(number);
  if (member && member->proxy && !members_[static_cast<size_t>(number)].end) return std::nullopt;
  const bool is_here = !members_[static_cast<size_t>(number)].end;
  SeenEnd end = end_of(number);
  if (is_here) end.note(memory_kills_.rise());
  if (end.is_clean() || !end.is_known()) finished_.insert(number);
  return end.exit(is_here);
}

SeenEnd JobGroup::end_of(int number) const {
  if (const auto& end = members_[static_cast<size_t>(number)].end) return *end;
  SeenEnd end{.rank = number, .pid = rank(number).pid, .wait_status = wait_status_of_zombie(rank(number).pid)};
  for (const std::string& folder : job_.folders)
    if (const Job job = read_job(folder); const JobMember* member = job.rank(number))
      if (member->facts.pid == rank(number).pid && member->facts.end) end.said = member->facts.end;
  return end;
}

void JobGroup::buried(int number, State before) {
  const auto& end = at(number).end;
  expected_.erase(number);
  if (ending_) return;
  if (before == State::ready) {
    protocol::CellError error;
    error.type = end && end->signal != 0 ? signal_name(end->signal) : "exit";
    error.message = end ? end->words + end->core : "the rank goes on with its program";
    listener_.died(number, error);
  } else if (end) {
    listener_.warning(fmt::format("rank {} {}", number, end->words));
  }
  if (!end && invite(number)) expected_.insert(number);
}

RankSet JobGroup::away() const {
  RankSet result;
  for (int r = 0; r < world_size(); ++r)
    if (!at(r).end && rank(r).state != State::ready) result.insert(r);
  return result;
}

std::string JobGroup::absence(int number) const {
  if (const auto& end = at(number).end) return end->words;
  return members_.at(static_cast<size_t>(number)).left_alone ? "was left alone" : "is not at a breakpoint";
}

std::string JobGroup::places(const RankSet& ranks) const {
  std::map<int, std::string> lines;
  const std::map<int, std::string> activities = activities_of(members(ranks & away()), kAgentLimit);
  for (const int each : ranks) {
    const RankInfo& info = rank(each);
    std::string text = "not at a breakpoint";
    if (live().contains(each))
      text = "stopped at " + info.hello.where;
    else if (at(each).end)
      text = at(each).end->words;
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
    if (ranks.contains(number) && member.is_alive && number < world_size() && !at(number).end) result.push_back(member);
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
        "{} can't be asked from here: {} on another machine (lockstep attach --hosts reaches those), or {} not called "
        "this package yet. All ranks stop after the same step, or none",
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
      return std::all_of(early.begin(), early.end(), [&](int each) { return at(each).end || condition(each); });
    };
  };
  loop_.run_until(all([this](int each) { return live().contains(each); }), EventLoop::Clock::now() + kConnectLimit);
  let_go(early);
  const auto gone = [this](int each) { return rank(each).state < State::ready; };
  loop_.run_until(all(gone), EventLoop::Clock::now() + kConnectLimit);
  RankSet stays;
  for (const int each : early)
    if (!at(each).end && !gone(each)) stays.insert(each);
  return stays;
}

void JobGroup::kill(int number) {
  if (std::exchange(members_.at(static_cast<size_t>(number)).left_alone, true) || rank(number).state != State::ready)
    return;
  // It ends its connection when the cell that it is in has ended.
  hub_.send(number, protocol::Shutdown{});
  at(number).info.state = State::starting;
  protocol::CellError error;
  error.type = "left";
  error.message = "the rank is left alone: it goes on with its program when the cell ends";
  if (!starting_ && !ending_) listener_.died(number, error);
}

void JobGroup::begin_shutdown() {
  std::map<std::string, std::vector<JobMember>> by_path;
  for (const JobMember& each : members(away())) by_path[hub_path_of(each)].push_back(each);
  for (const auto& [path, ranks] : by_path) ask_ranks(ranks, {{"request", "take_back"}, {"hub", path}}, kLeaveLimit);
}

}  // namespace lockstep::shell
