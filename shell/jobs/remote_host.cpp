#include "shell/jobs/remote_host.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "collectives/log/process_identity.h"
#include "protocol/error.h"
#include "protocol/unix_address.h"
#include "protocol/version.h"
#include "shell/jobs/job_logs.h"

namespace lockstep::shell {
namespace {

using nlohmann::json;
using namespace std::chrono_literals;

constexpr auto kPingEvery = 2s;
constexpr auto kSilentAfter = 10s;  // said then
constexpr auto kLostAfter = 60s;
constexpr auto kLeaveLimit = 5s;  // for a relay to end with its input, and its launcher after it
constexpr size_t kLongestPreface = 1 << 16;
constexpr int kDrift = 10'000;  // clocks drift apart by less than 1/kDrift of the time that passes

}  // namespace

std::shared_ptr<RemoteHost> RemoteHost::start(EventLoop& loop, const Host& host, const std::string& program,
                                              const std::string& hub, Listener listener) {
  const std::shared_ptr<RemoteHost> one(new RemoteHost(loop, host.name, hub, std::move(listener)));
  one->start(host, program);
  return one;
}

std::shared_ptr<RemoteHost> RemoteHost::start(EventLoop& loop, const std::string& name, Descriptor socket,
                                              const std::string& hub, Listener listener) {
  const std::shared_ptr<RemoteHost> one(new RemoteHost(loop, name, hub, std::move(listener)));
  Descriptor to(::fcntl(socket.get(), F_DUPFD_CLOEXEC, 0));
  if (!to) throw StartError("no descriptor is left for the relay of " + name);
  one->begin(std::move(to), std::move(socket));
  return one;
}

RemoteHost::RemoteHost(EventLoop& loop, std::string name, std::string hub, Listener listener)
    : loop_(loop),
      name_(std::move(name)),
      listener_(std::move(listener)),
      outbox_(loop),
      hub_(std::move(hub)),
      tunnels_(loop,
               [this](int64_t number, std::string bytes) { write(Piece{.connection = number}, {std::move(bytes)}); }),
      next_ping_(loop),
      silence_(Clock::now(), kPingEvery) {}

void RemoteHost::start(const Host& host, const std::string& program) {
  Pipe to = make_pipe(), from = make_pipe();
  launcher_ = host.command.empty() ? program : host.command.front();
  const std::vector<std::string> command = host.starting(
      program, hub_.empty() ? std::vector<std::string>{"relay"} : std::vector<std::string>{"relay", "--hub"});
  Launch launch;
  launch.program = command.front();
  launch.arguments.assign(command.begin() + 1, command.end());
  launch.input = to.read.get();
  launch.output = from.write.get();
  launch.outputs = {1};  // what ssh and srun complain of is for the user
  // Of an srun that is killed the relay would not hear. It ends with its input.
  launch.dies_with_shell = launcher_ != "srun";
  child_ = std::make_unique<Child>(launch);
  begin(std::move(to.write), std::move(from.read));
}

void RemoteHost::begin(Descriptor to, Descriptor from) {
  has_messages_ = make_event();
  if (!has_messages_) throw StartError("no descriptor is left for the relay of " + name_);
  outbox_.open(std::move(to));
  from_ = std::move(from);
  set_nonblocking(from_.get());
  silence_ = Silence(Clock::now(), kPingEvery);
  loop_.watch(from_.get(), [this] { read(); });
  loop_.watch(has_messages_.get(), [this] { take_messages(); });
  ping();
}

RemoteHost::~RemoteHost() {
  if (from_) loop_.forget(from_.get());
  if (has_messages_) loop_.forget(has_messages_.get());
  leave();
  if (child_) child_->ended_within(kLeaveLimit);  // else its launcher is killed, and what that does is not ours
}

void RemoteHost::leave() { outbox_.close(); }

bool RemoteHost::is_here() const { return hello_ && hello_->machine == dist::machine_identity(); }

bool RemoteHost::answers() const {
  return state_ == State::heard && lost_words_.empty() && silence_.length() < kSilentAfter;
}

std::string RemoteHost::absence() const {
  if (!lost_words_.empty()) return lost_words_;
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(silence_.length()).count();
  return state_ == State::starting ? fmt::format("its relay has not answered for {} s", seconds)
                                   : fmt::format("no word for {} s", seconds);
}

std::string RemoteHost::answers_again() const {
  return fmt::format("host {} answers{}", name_, was_silent_ ? " again" : "");
}

void RemoteHost::judge(const std::string& folder) { write(JudgedElsewhere{.folder = folder, .host = this_host()}); }

void RemoteHost::say_verdict(const std::string& folder, int exit_code, bool ends) {
  write(JudgesVerdict{.folder = folder, .host = this_host(), .exit_code = exit_code, .ends = ends});
}

void RemoteHost::write(const ToRelay& message, std::vector<std::string> frames, bool is_urgent) {
  if (outbox_.is_open())
    outbox_.push(protocol::wire_bytes({.header = protocol::encode_variant(message), .frames = std::move(frames)}),
                 is_urgent);
}

void RemoteHost::read() {
  silence_.look(Clock::now());
  std::string bytes;
  Reading found = Reading::bytes;
  while ((found = read_some(from_.get(), bytes)) == Reading::bytes) {
  }
  const bool is_over = found != Reading::empty;
  try {
    if (!is_greeted_) {
      preface_ += bytes;
      bytes.clear();
      const size_t greeting = preface_.find(kRelayGreeting);
      if (greeting == std::string::npos && preface_.size() > kLongestPreface)
        throw ChannelError("what answers there is no relay of Lockstep");
      if (greeting != std::string::npos) {
        is_greeted_ = true;
        bytes = preface_.substr(greeting + std::string_view(kRelayGreeting).size());
      }
    }
    if (is_greeted_) assembler_.append(bytes);
    while (auto message = is_greeted_ ? assembler_.next() : std::nullopt) {
      silence_.end();
      FromRelay decoded = protocol::decode_variant<FromRelay>(message->header);
      if (auto* answer = std::get_if<AskAnswer>(&decoded)) {
        if (const auto asked = asked_.find(answer->number); asked != asked_.end())
          asked->second.answers = std::move(answer->answers);
        continue;
      }
      if (std::holds_alternative<FileTaken>(decoded)) {
        outbox_.taken();
        continue;
      }
      if (auto* logs = std::get_if<Logs>(&decoded)) {
        if (const auto asked = logs_.find(logs->number); asked != logs_.end()) asked->second = std::move(logs->logs);
        continue;
      }
      if (const auto* pong = std::get_if<Pong>(&decoded)) take(*pong);
      if (const auto* piece = std::get_if<Piece>(&decoded)) {
        carry(*piece, message->frames.empty() ? "" : message->frames.front());
        continue;
      }
      // What ranks say is kept elsewhere until the loop comes to it.
      const bool is_of_ranks = std::holds_alternative<FromRanks>(decoded) || std::holds_alternative<RanksLeft>(decoded);
      if (is_of_ranks && listener_.session)
        listener_.session(std::move(decoded), std::move(message->frames));
      else
        messages_.emplace_back(std::move(decoded), std::move(message->frames));
    }
  } catch (const Error& error) {
    hang_up(error.what());
  }
  if (is_over && from_) {
    const auto end = child_ ? child_->ended_within(1000ms) : std::nullopt;
    hang_up(fmt::format("its relay ended{}", end ? fmt::format(" ({} {})", launcher_, end->str()) : ""));
  }
  if (!messages_.empty()) set_event(has_messages_.get());
}

void RemoteHost::take(const Pong& pong) {
  if (pong.number != ping_) return;
  const auto now = Clock::now();
  const auto trip = now - pinged_at_;
  // A slower ping tells more once the clocks may have drifted by more than the difference.
  if (trip_ != Clock::duration::max() && trip >= trip_ + (now - clocks_known_at_) / kDrift) return;
  clock_offset_ns_ = pong.time_ns - (pinged_ns_ + std::chrono::nanoseconds(trip).count() / 2);
  const int64_t here = std::chrono::nanoseconds(pinged_at_.time_since_epoch() + trip / 2).count();
  monotonic_ahead_ns_ = pong.monotonic_ns - here;
  trip_ = trip;
  clocks_known_at_ = now;
}

void RemoteHost::carry(const Piece& piece, const std::string& bytes) {
  if (!piece.opens) {
    tunnels_.deliver(piece.connection, bytes);
    return;
  }
  Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto hub = unix_address(hub_);
  if (hub_.empty() || !hub || ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&*hub), sizeof *hub) != 0)
    write(Piece{.connection = piece.connection}, {""});
  else
    tunnels_.open(piece.connection, std::move(socket));
}

void RemoteHost::hang_up(std::string why) {
  if (from_) loop_.forget(from_.get());
  from_.reset();
  outbox_.close();
  next_ping_.cancel();
  lost_words_ = std::move(why);
  set_event(has_messages_.get());
}

void RemoteHost::take_messages() {
  take_event(has_messages_.get());
  const auto self = shared_from_this();
  try {
    for (auto& [message, frames] : std::exchange(messages_, {})) take(std::move(message), std::move(frames));
  } catch (const ChannelError& error) {
    hang_up(error.what());
  }
  if (lost_words_.empty() || state_ == State::lost) return;
  state_ = State::lost;
  members_.clear();
  listener_.changed(*this);
}

JobMember RemoteHost::member(const RankSeen& seen) {
  return {.facts = seen.facts, .socket = seen.socket, .is_alive = true, .proxy = shared_from_this()};
}

void RemoteHost::take(FromRelay&& message, std::vector<std::string> frames) {
  if (state_ == State::lost) return;
  if (auto* hello = std::get_if<RelayHello>(&message)) {
    if (hello->version != kVersion) {
      hang_up(fmt::format("its lockstep is {}, and this one is {}", hello->version, kVersion));
      return;
    }
    if (hello->protocol != kProtocolVersion) {
      hang_up(fmt::format("its lockstep speaks protocol {}, and this one {}: install them from one build",
                          hello->protocol, kProtocolVersion));
      return;
    }
    hello_ = std::move(*hello);
  }
  // The relay tells of the ranks that it has found before it answers for the first time.
  if (hello_ && (state_ == State::silent || (state_ == State::starting && std::holds_alternative<Pong>(message)))) {
    state_ = State::heard;
    listener_.changed(*this);
  }
  if (const auto* seen = std::get_if<RankSeen>(&message)) {
    if (!seen->facts.is_possible()) return;
    members_[seen->facts.pid] = *seen;
    listener_.seen(member(*seen));
  } else if (auto* gone = std::get_if<RankGone>(&message)) {
    const auto found = members_.find(gone->end.pid);
    if (found == members_.end()) return;
    const JobMember one = member(found->second);
    members_.erase(found);
    for (inspect::Evidence& each : gone->evidence) to_local_time(each);
    move_times(gone->end);
    gone->end.rank = one.facts.rank;
    inspect::Remains left;
    left.evidence = std::move(gone->evidence);
    left.unread = std::move(gone->unread);
    if (gone->faults > 0) listener_.faults(*this, one.folder(), gone->faults);
    listener_.ended(one, std::move(gone->end), left);
  } else if (auto* report = std::get_if<LauncherReport>(&message)) {
    for (SeenEnd& each : report->ends) move_times(each);
    listener_.report(*this, report->folder, report->ends);
  } else if (listener_.session) {
    listener_.session(std::move(message), std::move(frames));
  }
}

void RemoteHost::ping() {
  silence_.look(Clock::now());
  if (silence_.length() >= kLostAfter) {
    hang_up(
        fmt::format("no word for {} s", std::chrono::duration_cast<std::chrono::seconds>(silence_.length()).count()));
    return;
  }
  if (silence_.length() >= kSilentAfter && state_ != State::silent) {
    const bool was_heard = state_ == State::heard;
    if (was_heard) state_ = State::silent, was_silent_ = true;
    if (was_heard || silence_.length() < kSilentAfter + kPingEvery) listener_.changed(*this);
  }
  send_ping();
  next_ping_.set_after(kPingEvery, [this] { ping(); });
}

void RemoteHost::send_ping() {
  ping_ = next_number_++;
  pinged_at_ = Clock::now();
  pinged_ns_ = realtime_ns();
  write(Ping{ping_}, {}, /*is_urgent=*/true);
}

void RemoteHost::to_local_time(inspect::Evidence& evidence) const {
  const auto move = [&](int64_t& time_ns) { time_ns = time_ns == 0 ? 0 : time_ns - clock_offset_ns_; };
  move(evidence.taken_ns);
  for (inspect::EvidenceCall& call : evidence.calls) {
    move(call.created_ns);
    move(call.started_ns);
    move(call.completed_ns);
  }
  for (inspect::EvidenceError& error : evidence.errors) move(error.time_ns);
}

void RemoteHost::move_times(SeenEnd& end) const {
  const int64_t seconds = clock_offset_ns_ / 1'000'000'000;
  if (end.time_s != 0) end.time_s -= seconds;
  if (end.seen_ns != 0) end.seen_ns -= clock_offset_ns_;
  if (end.said && end.said->time != 0) end.said->time -= seconds;
}

int64_t RemoteHost::send(const std::vector<JobMember>& ranks, const json& request, std::chrono::milliseconds limit) {
  const int64_t number = next_number_++;
  Ask ask{.number = number, .pids = {}, .request = request, .limit_ms = limit.count()};
  Asked& asked = asked_[number];
  for (const JobMember& each : ranks) {
    ask.pids.push_back(each.facts.pid);
    asked.ranks[each.facts.pid] = each.facts.rank;
  }
  write(ask);
  return number;
}

std::string RemoteHost::put(const std::string& name, const std::shared_ptr<const std::string>& bytes) {
  if (files_.insert(name).second) outbox_.push_file(name, bytes);
  return std::filesystem::path(hub_path()).parent_path() / name;
}

int64_t RemoteHost::ask_logs(const std::vector<int>& ranks, const inspect::LogPart& part) {
  const int64_t number = next_number_++;
  logs_.try_emplace(number);
  write(ReadLogs{.number = number, .ranks = ranks, .recent = part.recent, .digests = part.digests});
  return number;
}

std::map<int, json> RemoteHost::take_logs(int64_t number, Clock::time_point end) {
  const auto asked = logs_.find(number);
  if (asked == logs_.end()) return {};
  serve_until([&] { return asked->second.has_value(); }, end);
  return std::move(logs_.extract(asked).mapped()).value_or(std::map<int, json>());
}

void RemoteHost::serve_until(const std::function<bool()>& done, Clock::time_point end) {
  if (!done() && from_) read();  // what has come while others were waited for
  // Nothing else asks meanwhile whether the host is there.
  while (!done() && from_ && Clock::now() < end && silence_.length() < kSilentAfter) {
    silence_.look(Clock::now());
    if (Clock::now() >= pinged_at_ + kPingEvery) send_ping();
    pollfd polled[2] = {{from_.get(), POLLIN, 0}, {outbox_.waiting(), POLLOUT, 0}};
    if (poll_until(polled, std::min(end, pinged_at_ + kPingEvery)) < 0) break;
    if (polled[1].revents != 0) outbox_.write();
    if (polled[0].revents != 0) read();
  }
}

std::map<int, AgentAnswer> RemoteHost::receive(int64_t number, Clock::time_point end) {
  Asked& asked = asked_.at(number);
  serve_until([&] { return asked.answers.has_value(); }, end);
  const std::string why = asked.answers ? "it has ended" : answers() ? "no answer in time" : absence();
  std::map<int, AgentAnswer> answers = std::move(asked.answers).value_or(std::map<int, AgentAnswer>());
  for (const auto& [pid, rank] : asked.ranks)
    answers.try_emplace(rank, AgentAnswer{.body = nullptr, .error = fmt::format("its host {}: {}", name_, why)});
  asked_.erase(number);
  return answers;
}

void add_left(const inspect::Remains& left, inspect::Remains& remains) {
  for (const inspect::Evidence& each : left.evidence) {
    if (each.source == inspect::EvidenceSource::collective_log)
      add_rank_log(each, remains);
    else
      remains.evidence.push_back(each);
  }
  remains.unread.insert(remains.unread.end(), left.unread.begin(), left.unread.end());
  ++remains.files;
}

}  // namespace lockstep::shell
