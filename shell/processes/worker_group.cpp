#include "shell/processes/worker_group.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "collectives/log/marked_processes.h"
#include "protocol/error.h"
#include "shell/processes/random_key.h"

namespace lockstep::shell {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A worker needs a fraction of a second to start; a machine that is busy, or many of them, much more.
constexpr seconds kWorkerStartLimit{60};
constexpr milliseconds kWorkerStartLimitPerRank{1000};
constexpr seconds kShutdownLimit{2};
// Messages of a process that has ended are read from its socket at once; only a connection that is not known to have
// ended waits for this.
constexpr milliseconds kLastMessages{500};
constexpr int kQuotedLines = 8;

/// Whether 127.0.0.1 can be reached: where the interface is down, or a firewall drops its packets, ranks would look for
/// the store for a minute.
void check_loopback(const Descriptor& listener, const sockaddr_in& address) {
  const auto fail = [](int error) {
    throw StartError(std::string("the session could not start: 127.0.0.1 can't be connected to (") +
                     std::strerror(error) +
                     "): bring the loopback interface up (ip link set lo up), and let the firewall pass connections to "
                     "it; lockstep doctor checks that");
  };
  const Descriptor client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!client) fail(errno);
  if (::connect(client.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 && errno != EINPROGRESS)
    fail(errno);
  pollfd connected{client.get(), POLLOUT, 0};
  constexpr int kLoopbackLimit_ms = 5000;
  int ready;
  do ready = ::poll(&connected, 1, kLoopbackLimit_ms);
  while (ready < 0 && errno == EINTR);
  int error = ready == 0 ? ETIMEDOUT : 0;
  socklen_t size = sizeof error;
  if (ready > 0) ::getsockopt(client.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) fail(error);
  // The store is to find no connection of ours.
  const Descriptor server(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
}

/// A listening socket on 127.0.0.1 with a port that the kernel chose.
Descriptor listen_on_loopback(int& port) {
  Descriptor fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (!fd || ::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size) != 0 || ::listen(fd.get(), SOMAXCONN) != 0 ||
      ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0)
    throw StartError(std::string("no socket for the store could be opened on 127.0.0.1: ") + std::strerror(errno) +
                     "; is the loopback interface up (ip link set lo up)?");
  check_loopback(fd, address);
  port = ntohs(address.sin_port);
  return fd;
}

std::string rank_name(int rank) { return "rank " + std::to_string(rank); }

}  // namespace

WorkerGroup::WorkerGroup(EventLoop& loop, const SessionPlan& plan, const SessionOptions& options,
                         SessionDirectory& directory, Listener listener)
    : loop_(loop), plan_(plan), rehearsal_(options.rehearsal), directory_(directory), listener_(std::move(listener)) {
  hub_ = std::make_unique<Hub>(directory_.hub_endpoint());
  lifeline_ = make_pipe();
  store_key_ = random_key();
  for (int rank = 0; rank < plan_.world_size; ++rank) ranks_.push_back(std::make_unique<Rank>());
  try {
    start_store();
    for (int rank = 0; rank < plan_.world_size; ++rank) start_rank(rank, options);
  } catch (...) {  // the destructor does not run for what is half made
    for (auto& rank : ranks_) {
      if (rank->process) loop_.forget(rank->process->pidfd());
      if (rank->tail) loop_.forget(rank->tail->fd());
    }
    if (store_tail_) loop_.forget(store_tail_->fd());
    throw;
  }
  loop_.watch(hub_->socket(), [this] { receive(); });
  loop_.watch(hub_->monitor(), [this] { look_at_connections(); });
}

WorkerGroup::~WorkerGroup() {
  ending_ = true;
  loop_.forget(hub_->socket());
  loop_.forget(hub_->monitor());
  for (auto& rank : ranks_) {
    if (rank->burial) loop_.cancel(*rank->burial);
    if (rank->process) {
      loop_.forget(rank->process->pidfd());
      rank->process->kill();
    }
    if (rank->tail) loop_.forget(rank->tail->fd());
  }
  ranks_.clear();
  if (store_) dist::end_marked_processes({mark_of_session()}, {store_->pid()});
  if (store_tail_) loop_.forget(store_tail_->fd());
  if (store_) loop_.forget(store_->pidfd());
  store_.reset();
}

void WorkerGroup::start_store() {
  int port = 0;
  const Descriptor listener = listen_on_loopback(port);
  store_address_ = "127.0.0.1:" + std::to_string(port);
  keeper_line_ = make_pipe();
  // Nothing may block the session: a keeper that does not read is one that has ended.
  ::fcntl(keeper_line_.write.get(), F_SETFL, O_NONBLOCK);
  store_tail_ = std::make_unique<OutputTail>();
  Launch launch = rehearsal_ ? rehearsal_launch(*rehearsal_) : worker_launch();
  launch.arguments.emplace_back("--store");
  launch.environment.insert({{"LOCKSTEP_LIFELINE_FD", std::to_string(keeper_line_.read.get())},
                             {"LOCKSTEP_LISTEN_FD", std::to_string(listener.get())},
                             {"LOCKSTEP_SESSION_DIR", directory_.path()}});
  launch.inherit = {keeper_line_.read.get(), listener.get()};
  launch.output = store_tail_->write_end();
  // It has to be there for a moment after the shell was killed, to end what workers may have left behind.
  launch.dies_with_shell = false;
  store_ = std::make_unique<Child>(launch);
  store_tail_->close_write_end();
  keeper_line_.read.reset();
  loop_.watch(store_tail_->fd(), [this] {
    if (!store_tail_->take()) loop_.forget(store_tail_->fd());
  });
  loop_.watch(store_->pidfd(), [this] {
    const auto end = store_->ended();
    if (!end) return;
    loop_.forget(store_->pidfd());
    store_has_ended_ = true;
    const std::string quoted = store_tail_->last_lines(kQuotedLines);
    if (starting_)
      start_error_ = "the store's process " + end->str() + "\n" + quoted;
    else if (!ending_)
      listener_.store_ended(end->str() + (quoted.empty() ? "" : " (" + quoted.substr(2) + ")"));
  });
}

void WorkerGroup::start_rank(int number, const SessionOptions& options) {
  Rank& rank = *ranks_[static_cast<size_t>(number)];
  directory_.add_rank(number);
  const std::string size = std::to_string(plan_.world_size), index = std::to_string(number);
  rank.tail = std::make_unique<OutputTail>();
  rank.output = std::make_unique<LastOutput>();
  Launch launch = rehearsal_ ? rehearsal_launch(*rehearsal_) : worker_launch();
  launch.environment.insert({{"LOCKSTEP_RANK", index},
                             {"LOCKSTEP_IDENTITY", hub_->expect(number)},
                             {"LOCKSTEP_OUTPUT_FDS", rank.output->environment()},
                             {"LOCKSTEP_WORLD_SIZE", size},
                             {"LOCKSTEP_LOCAL_RANK", index},
                             {"LOCKSTEP_LOCAL_WORLD_SIZE", size},
                             {"LOCKSTEP_NODE_RANK", "0"},
                             {"LOCKSTEP_SESSION_DIR", directory_.path()},
                             {"LOCKSTEP_HUB", directory_.hub_endpoint()},
                             {"LOCKSTEP_STORE", store_address_},
                             {"LOCKSTEP_STORE_KEY", store_key_},
                             {"LOCKSTEP_BACKEND", plan_.backend},
                             {"LOCKSTEP_THREADS", std::to_string(plan_.threads)},
                             {"LOCKSTEP_CHECK_COLLECTIVES", options.check_collectives ? "1" : "0"},
                             {"LOCKSTEP_LIFELINE_FD", std::to_string(lifeline_.read.get())},
                             {"LOCKSTEP_ARGUMENTS", nlohmann::json(options.arguments).dump()}});
  launch.environment.merge(device_environment(plan_, number));
  launch.inherit = rank.output->descriptors();
  launch.inherit.push_back(lifeline_.read.get());
  launch.output = rank.tail->write_end();
  rank.process = std::make_unique<Child>(launch);
  rank.tail->close_write_end();
  rank.output->close_writing_ends();
  rank.info.pid = rank.process->pid();
  rank.info.device = plan_.devices[static_cast<size_t>(number)];
  const std::string line = std::to_string(rank.info.pid) + "\n";
  (void)!::write(keeper_line_.write.get(), line.data(), line.size());
  loop_.watch(rank.tail->fd(), [this, &rank] {
    if (!rank.tail->take()) loop_.forget(rank.tail->fd());
  });
  loop_.watch(rank.process->pidfd(), [this, number] { process_ended(number); });
}

void WorkerGroup::receive() {
  // A storm of output must not keep the rest of the session waiting: the loop comes back for what is left.
  constexpr int kAtOnce = 256;
  for (int i = 0; i < kAtOnce; ++i)
    if (!receive_one()) break;
  look_at_connections();
}

void WorkerGroup::look_at_connections() {
  hub_->take_connection_events();
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    const bool ended = hub_->connection_ended(static_cast<int>(rank));
    if (ended && ranks_[rank]->end && ranks_[rank]->info.state != RankInfo::State::dead) bury(static_cast<int>(rank));
  }
}

/// False when no message waits.
bool WorkerGroup::receive_one() {
  try {
    auto from = hub_->receive();
    if (!from) return false;
    if (from->rank >= 0)
      handle(*from);
    else if (!std::exchange(warned_of_unauthenticated_peer_, true) && listener_.warning)
      listener_.warning("a process that is no rank of this session connects to its socket (" +
                        directory_.hub_endpoint() + "); what it sends is ignored");
  } catch (const BadMessage& error) {
    // What it meant to say is lost, so it can't be relied upon any more. The others go on.
    Rank& rank = *ranks_[static_cast<size_t>(error.rank)];
    const std::string what = std::string("it sent the session what can't be read: ") + error.what();
    if (starting_) {
      start_error_ = rank_name(error.rank) + ": " + what;
    } else if (!rank.last_words) {
      rank.last_words.emplace();
      rank.last_words->type = "protocol_error";
      rank.last_words->message = what + "; its process was ended";
      kill(error.rank);
    }
  }
  return true;
}

void WorkerGroup::handle(FromWorker& from) {
  Rank& rank = *ranks_[static_cast<size_t>(from.rank)];
  if (rank.info.state == RankInfo::State::dead) return;
  if (const auto* output = std::get_if<protocol::Output>(&from.message); output && !from.frames.empty())
    rank.output->received(output->stream, from.frames[0].size());
  if (const auto* hello = std::get_if<protocol::Hello>(&from.message)) {
    rank.info.hello = *hello;
    rank.info.host = hello->host;
    rank.info.device = hello->device;
    rank.info.state = RankInfo::State::connected;
  } else if (const auto* ready = std::get_if<protocol::Ready>(&from.message)) {
    rank.info.threads = ready->threads;
    rank.info.state = RankInfo::State::ready;
  } else if (const auto* refusal = std::get_if<protocol::NotReady>(&from.message)) {
    rank.refusal = refusal->message;
    if (starting_) start_error_ = rank_name(from.rank) + ": " + refusal->message;
  } else if (const auto* dying = std::get_if<protocol::Dying>(&from.message)) {
    rank.last_words = dying->error;
  } else if (listener_.message) {
    listener_.message(from);
  }
}

void WorkerGroup::process_ended(int number) {
  Rank& rank = *ranks_[static_cast<size_t>(number)];
  const auto end = rank.process->ended();
  if (!end) return;
  loop_.forget(rank.process->pidfd());
  rank.end = end;
  // Its group is gone with it. What left the group goes, too; at the session's end all of them at once.
  if (!ending_) dist::end_marked_processes({mark_of_session(), "LOCKSTEP_RANK=" + std::to_string(number)});
  const std::string line = "-" + std::to_string(rank.info.pid) + "\n";
  (void)!::write(keeper_line_.write.get(), line.data(), line.size());
  hub_->take_connection_events();
  if (!hub_->was_connected(number) || hub_->connection_ended(number)) {
    bury(number);
    return;
  }
  rank.burial = loop_.at(EventLoop::Clock::now() + kLastMessages, [this, number] { bury(number); });
  look_at_connections();
}

void WorkerGroup::bury(int number) {
  Rank& rank = *ranks_[static_cast<size_t>(number)];
  if (const auto burial = std::exchange(rank.burial, std::nullopt)) loop_.cancel(*burial);
  // What it had sent has arrived by now, and may still be in the queue.
  for (size_t left = hub_->arrived(); left > 0 && receive_one(); --left) {
  }
  const auto rest = rank.output->take();
  for (const Stream stream : protocol::kStreams)
    if (const std::string& bytes = rest[protocol::index_of(stream)]; !bytes.empty() && listener_.last_output)
      listener_.last_output(number, stream, bytes);
  rank.info.state = RankInfo::State::dead;
  if (starting_) {
    if (start_error_.empty()) {
      const std::string quoted = rank.tail->last_lines(kQuotedLines);
      start_error_ = rank_name(number) + " " + rank.end->str() + " while it started";
      if (!quoted.empty()) start_error_ += "; it wrote:\n" + quoted;
    }
  } else if (!ending_) {
    listener_.died(number, obituary(rank));
  }
  look_at_connections();
}

protocol::CellError WorkerGroup::obituary(const Rank& rank) const {
  protocol::CellError error;
  if (rank.last_words) error = *rank.last_words;
  error.root_cause = true;
  if (error.type.empty()) error.type = rank.end->signal != 0 ? signal_name(rank.end->signal) : "exit";
  if (error.message.empty()) error.message = "the process " + rank.end->str();
  const std::string quoted = rank.tail->last_lines(kQuotedLines);
  if (!quoted.empty()) error.message += "; it wrote:\n" + quoted;
  return error;
}

void WorkerGroup::serve_start(RankInfo::State wanted, const std::string& what) {
  const auto reached = [&] {
    return std::all_of(ranks_.begin(), ranks_.end(), [&](const auto& r) { return r->info.state >= wanted; });
  };
  const auto limit = kWorkerStartLimit + kWorkerStartLimitPerRank * world_size();
  const bool in_time =
      loop_.run_until([&] { return !start_error_.empty() || reached(); }, EventLoop::Clock::now() + limit);
  if (!start_error_.empty()) throw StartError("the session could not start: " + start_error_);
  if (in_time) return;
  RankSet missing;
  for (int r = 0; r < world_size(); ++r)
    if (rank(r).state < wanted) missing.insert(r);
  std::string message = "the session could not start: rank " + missing.str() + " " + what + " in " +
                        std::to_string(std::chrono::duration_cast<seconds>(limit).count()) + " s";
  const std::string quoted = ranks_[static_cast<size_t>(missing.ranks().front())]->tail->last_lines(kQuotedLines);
  if (!quoted.empty()) message += "; rank " + std::to_string(missing.ranks().front()) + " wrote:\n" + quoted;
  throw StartError(message);
}

void WorkerGroup::wait_connected() { serve_start(RankInfo::State::connected, "did not connect"); }

void WorkerGroup::make_ready(const std::string& prelude, const Versions& compiler) {
  compare_versions(compiler);
  hub_->send(RankSet::all(world_size()), protocol::Prelude{prelude});
  serve_start(RankInfo::State::ready, "did not get ready");
  starting_ = false;
}

void WorkerGroup::compare_versions(const Versions& compiler) const {
  const auto differ = [](const std::string& who, const std::string& what, const std::string& theirs,
                         const std::string& ours) {
    if (theirs != ours)
      throw StartError("the session could not start: " + who + " is of " + what + " " + theirs +
                       ", and this session of " + ours +
                       ": use programs of one build (LOCKSTEP_BIN names their folder)");
  };
  differ("lockstep-compiler", "protocol", std::to_string(compiler.protocol), std::to_string(kProtocolVersion));
  differ("lockstep-compiler", "version", compiler.lockstep, kVersion);
  for (int r = 0; r < world_size(); ++r) {
    const Versions& worker = rank(r).hello.versions;
    differ("lockstep-worker", "protocol", std::to_string(worker.protocol), std::to_string(kProtocolVersion));
    differ("lockstep-worker", "version", worker.lockstep, kVersion);
    differ("the worker of " + rank_name(r), "LibTorch", worker.libtorch, compiler.libtorch);
  }
}

void WorkerGroup::shutdown() {
  ending_ = true;
  hub_->send(live(), protocol::Shutdown{});
  loop_.run_until(
      [&] { return std::all_of(ranks_.begin(), ranks_.end(), [](const auto& r) { return r->end.has_value(); }); },
      EventLoop::Clock::now() + kShutdownLimit);
}

RankSet WorkerGroup::live() const {
  RankSet result;
  for (int r = 0; r < world_size(); ++r)
    if (rank(r).state != RankInfo::State::dead && !ranks_[static_cast<size_t>(r)]->end) result.insert(r);
  return result;
}

void WorkerGroup::kill(int rank) { ranks_.at(static_cast<size_t>(rank))->process->kill(); }

nlohmann::json WorkerGroup::describe() const {
  nlohmann::json workers = nlohmann::json::array();
  for (size_t r = 0; r < ranks_.size(); ++r)
    workers.push_back({{"rank", r}, {"pid", ranks_[r]->info.pid}, {"start_time", ranks_[r]->process->start_time()}});
  return workers;
}

}  // namespace lockstep::shell
