#include "shell/processes/rank_group.h"

#include <algorithm>
#include <utility>

#include "protocol/error.h"
#include "protocol/output_channel.h"

namespace lockstep::shell {
namespace {

constexpr std::chrono::seconds kShutdownLimit{2};
// Messages of a process that has ended are read from its socket at once; only a connection that is not known to have
// ended waits for this.
constexpr std::chrono::milliseconds kLastMessages{500};

}  // namespace

RankGroup::RankGroup(EventLoop& loop, std::string endpoint, int world_size, Listener listener)
    : loop_(loop), endpoint_(std::move(endpoint)), listener_(std::move(listener)), hub_(endpoint_) {
  for (int rank = 0; rank < world_size; ++rank) ranks_.emplace_back(loop_);
  loop_.watch(hub_.socket(), [this] { receive(); });
  loop_.watch(hub_.monitor(), [this] { look_at_connections(); });
  loop_.watch(hub_.delivered(), [this] { receive(); });
}

RankGroup::~RankGroup() {
  loop_.forget(hub_.socket());
  loop_.forget(hub_.monitor());
  loop_.forget(hub_.delivered());
  for (const Rank& rank : ranks_)
    if (rank.pidfd >= 0) loop_.forget(rank.pidfd);
}

void RankGroup::shutdown() {
  ending_ = true;
  begin_shutdown();
  let_go(live());
  loop_.run_until(
      [&] {
        return std::ranges::none_of(ranks_, [](const Rank& r) { return r.info.state == State::leaving && !r.end; });
      },
      EventLoop::Clock::now() + kShutdownLimit);
}

bool RankGroup::restart(int, int64_t, const std::function<bool()>&) {
  throw StartError("these ranks can't be started again one by one");
}

void RankGroup::grow(const SessionPlan& plan) {
  const RankInfo first = rank(0);
  while (world_size() < plan.world_size) {
    Rank& added = ranks_.emplace_back(loop_);
    added.end = RankExit{.words = "has not started"};
    RankInfo& info = added.info;
    info.state = State::dead;
    info.host = first.host;
    info.hello.machine = first.hello.machine;
    info.device = plan.devices.at(static_cast<size_t>(world_size() - 1));
  }
  for (Rank& each : ranks_) each.info.threads = plan.threads;
  grown_ = plan;
}

bool RankGroup::can_restart_any() const {
  return std::ranges::any_of(RankSet::all(world_size()), [this](int each) { return can_restart(each); });
}

RankSet RankGroup::live() const {
  RankSet result;
  for (int r = 0; r < world_size(); ++r)
    if (at(r).info.state == State::ready && !at(r).end) result.insert(r);
  return result;
}

void RankGroup::watch_process(int number, pid_t pid, int pidfd) {
  at(number).info.pid = pid;
  at(number).pidfd = pidfd;
  loop_.watch(pidfd, [this, number] { process_ended(number); });
}

bool RankGroup::share_machine() const {
  const std::string& machine = ranks_.front().info.hello.machine;
  return std::ranges::all_of(ranks_, [&](const Rank& each) { return each.info.hello.machine == machine; });
}

void RankGroup::send_object(const RankSet& ranks, protocol::Load load, std::string bytes) {
  std::vector<zmq::message_t> frames;
  frames.push_back(shared_frame(std::move(bytes)));
  hub_.send(ranks, load, std::move(frames));
}

bool RankGroup::serve_start(const std::function<bool()>& done, EventLoop::Clock::duration limit, const char* failure) {
  const bool in_time =
      loop_.run_until([&] { return !start_error_.empty() || done(); }, EventLoop::Clock::now() + limit);
  if (!start_error_.empty()) throw StartError(failure + start_error_);
  return in_time;
}

RankSet RankGroup::dismiss(const RankSet& ranks) {
  let_go(ranks);
  const auto still_there = [&] {
    RankSet there;
    for (const int each : ranks)
      if (rank(each).state != State::dead) there.insert(each);
    return there;
  };
  const auto are_gone = [&] { return still_there().empty(); };
  if (loop_.run_until(are_gone, EventLoop::Clock::now() + kShutdownLimit)) return {};
  for (const int each : still_there()) kill(each);
  loop_.run_until(are_gone, EventLoop::Clock::now() + kShutdownLimit);
  return still_there();
}

void RankGroup::let_go(const RankSet& ranks) {
  const RankSet meant = ranks & live();
  hub_.send(meant, protocol::Shutdown{});
  for (const int rank : meant) at(rank).info.state = State::leaving;
}

// ---- Messages -------------------------------------------------------------------------------------------------------

void RankGroup::receive() {
  // A storm of output must not keep the rest of the session waiting: the loop comes back for what is left.
  constexpr int kAtOnce = 256;
  for (int i = 0; i < kAtOnce; ++i)
    if (!receive_one()) break;
  look_at_connections();
}

bool RankGroup::receive_one() {
  try {
    auto from = hub_.receive();
    if (!from) return false;
    if (from->rank >= 0)
      handle(*from);
    else if (!std::exchange(warned_of_unauthenticated_peer_, true))
      listener_.warning("a process that is no rank of this session connects to its socket (" + endpoint_ +
                        "); what it sends is ignored");
  } catch (const BadMessage& error) {
    give_up(error.rank, error.what());
  }
  return true;
}

void RankGroup::handle(FromWorker& from) {
  Rank& rank = at(from.rank);
  if (rank.info.state == State::dead) return;
  if (const auto* hello = std::get_if<protocol::Hello>(&from.message)) {
    rank.info.hello = *hello;
    rank.info.host = hello->host;
    rank.info.device = hello->device;
    rank.info.state = State::connected;
    came(from.rank);
  } else if (const auto* ready = std::get_if<protocol::Ready>(&from.message)) {
    rank.info.threads = ready->threads;
    rank.info.state = State::ready;
    came(from.rank);
  } else if (const auto* refusal = std::get_if<protocol::NotReady>(&from.message)) {
    const std::string why = "rank " + std::to_string(from.rank) + ": " + refusal->message;
    // A rank that was killed is the reason why others can't get ready; it is buried in a moment.
    const bool is_cause =
        std::none_of(ranks_.begin(), ranks_.end(), [](const Rank& each) { return each.end && each.end->signal != 0; });
    if (!starting_)
      listener_.warning(why);
    else if (is_cause)
      fail_start(why);
  } else if (const auto* dying = std::get_if<protocol::Dying>(&from.message)) {
    rank.last_words = dying->error;
  } else {
    if (const auto* output = std::get_if<protocol::Output>(&from.message); output && !from.frames.empty())
      rank.received[protocol::index_of(output->stream)] += static_cast<int64_t>(from.frames[0].size());
    listener_.message(from);
  }
}

// ---- Ends -----------------------------------------------------------------------------------------------------------

void RankGroup::look_at_connections() {
  hub_.take_connection_events();
  for (const int r : hub_.ended()) {
    if (!hub_.connection_ended(r) || at(r).info.state == State::dead) continue;
    if (at(r).end)
      bury(r);
    else
      disconnected(r);
  }
}

void RankGroup::store_has_ended(const std::string& how, const std::string& last_lines) {
  if (starting_)
    fail_start("the store's process " + how + "\n" + last_lines);
  else if (!ending_)
    listener_.store_ended(how + (last_lines.empty() ? "" : " (" + last_lines.substr(2) + ")"));
}

void RankGroup::process_ended(int number) {
  Rank& rank = at(number);
  rank.end = take_end(number);
  if (!rank.end) return;
  if (rank.pidfd >= 0) loop_.forget(std::exchange(rank.pidfd, -1));
  hub_.take_connection_events();
  if (!hub_.was_connected(number) || hub_.connection_ended(number)) return bury(number);
  rank.burial.set_after(kLastMessages, [this, number] { bury(number); });
  look_at_connections();
}

void RankGroup::bury(int number) {
  Rank& rank = at(number);
  rank.burial.cancel();
  // What it had sent has arrived by now, and may still be in the queue.
  for (size_t left = hub_.arrived(); left > 0 && receive_one(); --left) {
  }
  if (rank.end) {
    const auto rest = take_last_output(number, rank.received);
    for (const Stream stream : protocol::kStreams)
      if (const std::string& bytes = rest[protocol::index_of(stream)]; !bytes.empty())
        listener_.last_output(number, stream, bytes);
  }
  const State before = std::exchange(rank.info.state, rank.end ? State::dead : State::starting);
  buried(number, before);
  look_at_connections();
}

}  // namespace lockstep::shell
