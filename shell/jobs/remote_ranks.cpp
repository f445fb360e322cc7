#include "shell/jobs/remote_ranks.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <iterator>
#include <utility>

#include "inspectors/hang/picture_json.h"
#include "protocol/error.h"
#include "protocol/slurm_signals.h"
#include "shell/jobs/call_watch.h"

namespace lockstep::shell {
namespace {

constexpr std::chrono::milliseconds kLogLimit{2000};

}  // namespace

RemoteRanks::RemoteRanks(EventLoop& loop, const Host& host, const std::string& program, const std::string& hub)
    : host_(RemoteHost::start(loop, host, program, hub, host_listener())) {}

RemoteRanks::RemoteRanks(EventLoop& loop, const std::string& host, Descriptor socket, const std::string& hub,
                         int local_rank, int local_size, std::shared_ptr<void> carrier)
    : carrier_(std::move(carrier)),
      host_(RemoteHost::start(loop, host, std::move(socket), hub, host_listener())),
      count_(1),
      local_first_(local_rank),
      local_size_(local_size) {}

RemoteHost::Listener RemoteRanks::host_listener() {
  return {
      .seen =
          [this](const JobMember& rank) {
            seen_[rank.facts.pid] = rank;
            if (members_changed) members_changed();
          },
      .ended = [this](const JobMember& rank, const SeenEnd&, const inspect::Remains&) { seen_.erase(rank.facts.pid); },
      .changed = [this](const RemoteHost&) { host_changed(); },
      .session = [this](FromRelay&& message,
                        std::vector<std::string> frames) { take(std::move(message), std::move(frames)); }};
}

void RemoteRanks::start(const StartRanks& order, Listener listener) {
  order_ = order;
  listener_ = std::move(listener);
  if (host_->state() == RemoteHost::State::lost)
    throw StartError(fmt::format("host {}: {}", host_->name(), host_->absence()));
  host_->tell(order);
  for (const std::string& each : std::exchange(warnings_, {})) listener_.warning(each);
  if (host_->state() == RemoteHost::State::silent) host_changed();  // nobody could be told before
}

void RemoteRanks::take(FromRelay&& message, std::vector<std::string> frames) {
  if (const auto* signalled = std::get_if<RelaySignalled>(&message)) {
    // Slurm warns the processes of a step, and not those of the batch script or of salloc that have started it.
    if (std::ranges::find(protocol::kPreemptionSignals, signalled->signal) != std::end(protocol::kPreemptionSignals))
      ::kill(::getpid(), signalled->signal);
    return;
  }
  if (!listener_.failed) {  // no rank has been started: start() passes the warnings on
    if (const auto* warning = std::get_if<RelayWarning>(&message)) warnings_.push_back(warning->text);
    return;
  }
  if (const auto* started = std::get_if<RanksStarted>(&message)) {
    take(*started);
  } else if (const auto* failed = std::get_if<RanksFailed>(&message)) {
    listener_.failed(fmt::format("host {}: {}", host_->name(), failed->why));
  } else if (const auto* calls = std::get_if<CallsMade>(&message)) {
    if (listener_.calls && !frames.empty()) listener_.calls(unpacked(*calls, frames.front()));
  } else if (auto* sent = std::get_if<FromRanks>(&message)) {
    take(*sent, std::move(frames));
  } else if (const auto* left = std::get_if<RanksLeft>(&message)) {
    if (are_here(left->ranks)) listener_.left(left->ranks, left->lives);
  } else if (const auto* ended = std::get_if<RankEnded>(&message)) {
    take(*ended, std::move(frames));
  } else if (const auto* store = std::get_if<StoreEnded>(&message)) {
    if (order_.first != 0) return;  // it keeps the processes there, and no keys
    store_ended_ = true;
    listener_.store_ended(store->how, store->last_lines);
  } else if (const auto* warning = std::get_if<RelayWarning>(&message)) {
    listener_.warning(warning->text);
  }
}

std::vector<JobMember> RemoteRanks::members() const {
  std::vector<JobMember> found;
  for (const int64_t pid : pids_)
    if (const auto rank = seen_.find(pid); rank != seen_.end()) found.push_back(rank->second);
  return found;
}

void RemoteRanks::take(const RanksStarted& started) {
  is_started_ = true;
  pids_.assign(started.pids.begin(), started.pids.end());
  listener_.started(started);
}

Hub::Carry RemoteRanks::carry(const StartRanks& order) {
  if (order.python) return nullptr;  // their agents' connections go through the relay as they are
  return [this](const RankSet& ranks, const std::string& header, const std::vector<zmq::message_t>& frames,
                bool is_urgent) {
    std::vector<std::string> all = {header};
    for (const zmq::message_t& each : frames) all.push_back(each.to_string());
    host_->tell(ToRanks{ranks}, std::move(all), is_urgent);
  };
}

/// A relay speaks for its own ranks only.
bool RemoteRanks::are_here(const RankSet& ranks) const {
  return !ranks.empty() && ranks.ranks().front() >= order_.first && ranks.ranks().back() < order_.first + order_.count;
}

void RemoteRanks::take(FromRanks& sent, std::vector<std::string> frames) {
  auto frame = std::make_move_iterator(frames.begin());
  for (size_t i = 0; i < std::min(sent.from.size(), sent.frames.size()); ++i) {
    const int count = sent.frames[i];
    if (count < 1 || count > std::make_move_iterator(frames.end()) - frame || !are_here(sent.from[i])) {
      if (!std::exchange(has_warned_, true))
        listener_.warning(
            fmt::format("host {}: its relay has sent what is no message of its ranks, which is left out: "
                        "their cells may seem to go on; %dist_reset starts them again",
                        host_->name()));
      return;
    }
    Carried message{
        .ranks = std::move(sent.from[i]), .run_ms = {}, .header = *frame, .frames = {frame + 1, frame + count}};
    for (const int rank : message.ranks)
      if (const auto time = sent.run_ms.find(rank); time != sent.run_ms.end()) message.run_ms.insert(*time);
    frame += count;
    listener_.sent(std::move(message), sent.lives);
  }
}

void RemoteRanks::take(const RankEnded& ended, std::vector<std::string> frames) {
  if (ended.rank < order_.first || ended.rank >= order_.first + order_.count) return;
  Left& left = left_[ended.rank];
  left.lines = ended.last_lines;
  left.log = ended.log;
  if (ended.ends.size() == 2 && frames.size() == 4)
    for (size_t i = 0; i < 2; ++i)
      left.output[i] = {.end = ended.ends[i], .log = std::move(frames[2 * i]), .pipe = std::move(frames[2 * i + 1])};
  listener_.ended(ended.rank, {ended.how, ended.signal, ended.core});
}

void RemoteRanks::host_changed() {
  if (!listener_.failed) return;  // whoever waits for the host looks at its state
  if (host_->state() == RemoteHost::State::heard) {
    if (std::exchange(told_silent_, false)) listener_.warning(host_->answers_again());
    return;
  }
  const std::string why = fmt::format("host {}: {}", host_->name(), host_->absence());
  if (host_->state() != RemoteHost::State::lost) {
    told_silent_ = true;
    return listener_.warning(why);
  }
  listener_.failed(why);
  if (!is_started_) return;
  if (order_.first == 0) listener_.store_ended("is lost with host " + host_->name(), "");
  for (int rank = order_.first; rank < order_.first + order_.count; ++rank)
    if (!left_.contains(rank)) {
      left_[rank];
      listener_.ended(rank, {fmt::format("can't be seen any more: {}", why), 0});
    }
}

/// The number of the process is known once the rank has come.
RankProcess RemoteRanks::restart(int rank, const std::string& identity, int64_t generation) {
  if (!can_restart())
    throw StartError(fmt::format("rank {} can't be started again: host {}: {}", rank, host_->name(), host_->absence()));
  left_.erase(rank);
  host_->tell(RestartRank{.rank = rank, .identity = identity, .generation = generation});
  return {};
}

std::string RemoteRanks::last_lines(int rank) {
  const auto found = left_.find(rank);
  return found == left_.end() ? "" : found->second.lines;
}

std::array<std::string, 2> RemoteRanks::take_output(int rank, const std::array<int64_t, 2>& received) {
  const auto left = left_.find(rank);
  if (left == left_.end()) return {};
  const auto output = std::exchange(left->second.output, {});
  return {output[0].after(received[0]), output[1].after(received[1])};
}

std::function<void()> RemoteRanks::begin_read_logs(const std::vector<inspect::RankPicture*>& ranks,
                                                   const inspect::LogPart& part) {
  std::vector<int> numbers;
  std::map<int, nlohmann::json> logs;
  for (const inspect::RankPicture* each : ranks) {
    const auto left = left_.find(each->rank);
    if (part.recent > 1 || left == left_.end())
      numbers.push_back(each->rank);
    else if (!left->second.log.is_null())  // has come with its end: a death is reported without a wait
      logs[each->rank] = left->second.log;
  }
  const int64_t question = numbers.empty() ? 0 : host_->ask_logs(numbers, part);
  return [this, ranks, logs = std::move(logs), question, end = RemoteHost::Clock::now() + kLogLimit]() mutable {
    if (question != 0) logs.merge(host_->take_logs(question, end));
    for (inspect::RankPicture* each : ranks) {
      const auto found = logs.find(each->rank);
      if (found == logs.end()) continue;
      try {
        inspect::take_log_json(*each, found->second);
      } catch (const nlohmann::json::exception&) {  // the rank is shown without its log
        each->has_log = false;
      }
      inspect::move_times(*each, host_->clock_ahead_ns());
    }
  };
}

std::optional<std::string> RemoteRanks::put(const std::string& name, const std::shared_ptr<const std::string>& bytes) {
  return host_->put(name, bytes);
}

}  // namespace lockstep::shell
