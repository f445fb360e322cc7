#include "shell/relay/relay.h"

#include <fmt/format.h>
#include <sys/inotify.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <future>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

#include "collectives/log/process_identity.h"
#include "protocol/descriptor.h"
#include "protocol/error.h"
#include "protocol/files.h"
#include "protocol/job.h"
#include "protocol/pipe_channel.h"
#include "protocol/runtime_folder.h"
#include "protocol/slurm_signals.h"
#include "protocol/unix_address.h"
#include "protocol/version.h"
#include "shell/hosts/host.h"
#include "shell/hosts/tunnels.h"
#include "shell/jobs/call_watch.h"
#include "shell/jobs/job_findings.h"
#include "shell/jobs/job_folder.h"
#include "shell/jobs/job_logs.h"
#include "shell/jobs/job_picture.h"
#include "shell/jobs/rank_watch.h"
#include "shell/jobs/relay_messages.h"
#include "shell/processes/deadline.h"
#include "shell/processes/event_loop.h"
#include "shell/processes/gpus.h"
#include "shell/processes/session_directory.h"
#include "shell/processes/session_records.h"
#include "shell/relay/session_ranks.h"

namespace lockstep::shell {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr auto kEndsLimit = 5s;  // for ranks that are asked to end when the relay is
constexpr auto kAlone = 10s;  // without a word from the session, once this process has got SIGTERM
constexpr auto kSilentAfter = 10s;  // without a word from the judge: a `lockstep run` here is told
constexpr auto kLonely = 120s;  // without a word from the judge, which asks every 2 s; or with nobody who reads

/// Returns the ranks of all jobs of this user, and of a session those in the folder `own`.
std::vector<JobMember> all_ranks(const std::string& own) {
  std::vector<JobMember> ranks;
  for (Job& job : read_jobs(protocol::runtime_directories()))
    if (!job.is_session || std::ranges::find(job.folders, own) != job.folders.end())
      std::ranges::move(job.ranks, std::back_inserter(ranks));
  return ranks;
}

/// Returns what kLogRequest, kDigestsRequest or kCallRequest asks for.
AgentAnswer by_log_of(const JobMember& rank, const json& request) {
  const std::string what = request.value("request", "");
  if (what == kDigestsRequest)
    return {.body = {{"ok", true}, {"digests", read_call_digests(rank.folder(), rank.facts.rank, rank.facts.pid)}},
            .error = ""};
  if (what == kCallRequest)
    return {.body = {{"ok", true}, {"call", read_logged_call(rank.folder(), rank.facts.rank, rank.facts.pid, request)}},
            .error = ""};
  json logs = json::array();
  if (const auto log = read_rank_log(rank.folder(), rank.facts.rank, rank.facts.pid)) logs.push_back(*log);
  return {.body = {{"ok", true}, {"logs", logs}}, .error = ""};
}

/// Returns a descriptor that is readable once this process is asked to end, as Slurm does with the steps of a job, or
/// hears that this comes soon.
Descriptor terminations() {
  sigset_t signals;
  ::sigemptyset(&signals);
  for (const int signal : protocol::kPreemptionSignals) ::sigaddset(&signals, signal);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  return Descriptor(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
}

class Relay {
 public:
  Relay(int input, int output, bool has_hub)
      : input_(input),
        output_(output),
        has_hub_(has_hub),
        watch_(loop_, [this] { return all_ranks(session_.job_folder()); },
               {.came = [this](const JobMember& rank) { came(rank); },
                .changed = [this](const JobMember& rank) { say_rank(rank); },
                .ended = [this](const JobMember& rank, SeenEnd end) { ended(rank, std::move(end)); }}),
        tunnels_(loop_,
                 [this](int64_t number, std::string bytes) { write(Piece{.connection = number}, {std::move(bytes)}); }),
        calls_(loop_,
               [this](const std::vector<dist::NewCall>& calls) {
                 const auto [message, signatures] = packed(calls);
                 write(message, {signatures});
               }),
        session_(loop_, calls_, [this](const FromRelay& message, std::vector<std::string> frames) {
          write(message, std::move(frames));
        }) {}

  int run() {
    write_all(output_, kRelayGreeting);
    set_nonblocking(output_);
    if (has_hub_) listen();
    write(RelayHello{.version = kVersion,
                     .protocol = kProtocolVersion,
                     .host = this_host(),
                     .machine = dist::machine_identity(),
                     .hub = listener_ ? directory_->hub_path() : "",
                     .gpus = has_hub_ ? find_gpus().count() : 0,
                     .processor = processor_of_this_host()});
    new_files_ = Descriptor(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
    loop_.watch(input_, [this] { read(); });
    loop_.watch(terminations_.get(), [this] { signalled(); });
    if (new_files_)
      loop_.watch(new_files_.get(), [this] {
        char events[8192];
        while (::read(new_files_.get(), events, sizeof events) > 0) {
        }
        look();
      });
    look();
    // A judge whose machine is gone does not end the input.
    const auto ends = [this] { return is_over_ || is_asked_to_end_; };
    while (!ends() && !loop_.run_until(ends, asked_at_ + kLonely))
      is_over_ = EventLoop::Clock::now() >= asked_at_ + kLonely;
    signalled();
    if (is_asked_to_end_) await_ends();
    askers_.clear();  // which waits for them
    for (const std::string& folder : judged_) leave(folder);
    return 0;
  }

 private:
  /// Slurm ends ranks together with this process and its input: what the judge has written for a job, and what ranks have
  /// that it did not hear of, goes with the last of them.
  void await_ends() {
    loop_.forget(input_);
    look();
    for (const JobMember& rank : all_ranks(""))
      if (is_of_watched_job(rank)) judged_.insert(rank.folder());
    const auto is_of_judged = [this](const auto& each) { return judged_.contains(each.second.folder()); };
    loop_.run_until([&] { return std::ranges::none_of(ranks_, is_of_judged); }, EventLoop::Clock::now() + kEndsLimit);
  }

  /// A session ends in order then, and this relay with its input. A job that is watched hears of signals by itself.
  void signalled() {
    signalfd_siginfo signal = {};
    while (::read(terminations_.get(), &signal, sizeof signal) == sizeof signal)
      if (session_.is_started()) {
        write(RelaySignalled{static_cast<int>(signal.ssi_signo)});
        if (signal.ssi_signo == SIGTERM) end_if_alone();
      } else if (signal.ssi_signo == SIGTERM) {
        is_asked_to_end_ = true;
      }
  }

  /// Where srun was killed, Slurm keeps its input open. The end of the allocation comes by SIGTERM, and SIGKILL later.
  void end_if_alone() {
    if (EventLoop::Clock::now() >= asked_at_ + kAlone)
      is_over_ = true;
    else
      ends_alone_.set(asked_at_ + kAlone, [this] { end_if_alone(); });
  }

  void write(const FromRelay& message, std::vector<std::string> frames = {}) {
    const std::string bytes =
        protocol::wire_bytes({.header = protocol::encode_variant(message), .frames = std::move(frames)});
    const std::lock_guard lock(writes_);
    // Where nobody reads, the loop waits here as well: what ends the relay is looked for here, too.
    for (std::string_view rest = bytes; !rest.empty() && !is_over_;) {
      pollfd polled[] = {{output_, POLLOUT, 0}, {session_.is_started() ? -1 : terminations_.get(), POLLIN, 0}};
      const bool is_read = poll_until(polled, EventLoop::Clock::now() + kLonely) > 0 && polled[1].revents == 0;
      const ssize_t count = is_read ? uninterrupted([&] { return ::write(output_, rest.data(), rest.size()); }) : -1;
      if (count > 0)
        rest.remove_prefix(static_cast<size_t>(count));
      else if (!is_read || errno != EAGAIN)
        is_over_ = true;
    }
  }

  /// Folders of jobs come with their first rank.
  void look() {
    for (const std::string& folder : protocol::runtime_directories()) {
      watch_folder(folder, IN_CREATE | IN_ONLYDIR);
      std::error_code error;
      for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
        if (entry->path().filename().string().starts_with(protocol::kJobPrefix)) {
          watch_folder(entry->path(), IN_MOVED_TO | IN_ONLYDIR);
          report_launcher(entry->path());
        }
    }
    watch_.look();
    if (const std::string full = said_full_ ? "" : full_disk(); !full.empty()) {
      said_full_ = true;
      write(RelayWarning{fmt::format("{}: {}: ranks that start there can't be watched", this_host(), full)});
    }
    for (const JobMember& each : all_ranks(session_.job_folder()))
      if (!each.is_alive && !seen_.contains(each.facts.pid) && is_of_watched_job(each)) say_that_it_ended(each);
  }

  /// Whether a `lockstep run` has started it, here or elsewhere. What other jobs have left is nobody's.
  static bool is_of_watched_job(const JobMember& rank) {
    return !rank.facts.watch.empty() && (fs::path(rank.folder()).filename() == rank.facts.watch);
  }

  /// A rank that had ended before the relay saw it: how is known only if it said so.
  void say_that_it_ended(const JobMember& rank) {
    say_rank(rank);
    SeenEnd end{.rank = rank.facts.rank, .pid = rank.facts.pid, .said = rank.facts.end};
    if (end.said) {
      end.time_s = end.said->time;
      end.seen_ns = end.time_s * 1'000'000'000;
    }
    ended(rank, std::move(end));
  }

  void watch_folder(const std::string& folder, uint32_t events) {
    if (new_files_) ::inotify_add_watch(new_files_.get(), folder.c_str(), events);
  }

  void report_launcher(const std::string& folder) {
    if (reported_.contains(folder)) return;
    std::vector<SeenEnd> ends = read_launcher_report(folder);
    if (ends.empty()) return;
    reported_.insert(folder);
    write(LauncherReport{.folder = folder, .ends = std::move(ends)});
  }

  void came(const JobMember& rank) {
    if (!rank.is_alive && !is_of_watched_job(rank)) return;
    reported_.erase(rank.folder());
    ranks_[rank.facts.pid] = rank;
    say_rank(rank);
    watch_calls(rank);
  }

  void say_rank(const JobMember& rank) {
    seen_.insert(rank.facts.pid);
    write(RankSeen{.facts = rank.facts, .socket = rank.socket});
  }

  /// The judge compares what ranks of several machines call.
  void watch_calls(const JobMember& rank) {
    if (judged_.contains(rank.folder()) || rank.folder() == session_.job_folder())
      calls_.add(rank.facts.pid, protocol::rank_log(rank.folder(), rank.facts.rank));
  }

  void ended(const JobMember& rank, SeenEnd end) {
    if (!seen_.contains(rank.facts.pid)) return;
    calls_.remove(rank.facts.pid);
    ranks_.erase(rank.facts.pid);
    inspect::Remains left;
    if (end.said && end.said->how == "threw") add_left_dumps(rank.folder(), end.rank, rank.facts.world_size, left);
    if (auto log = read_rank_log(rank.folder(), end.rank, end.pid)) left.evidence.push_back(std::move(*log));
    write(RankGone{.end = std::move(end),
                   .evidence = std::move(left.evidence),
                   .unread = std::move(left.unread),
                   .faults = faults_of_inspectors_in(findings_file(rank.folder()))});
  }

  void read() {
    std::string bytes;
    const Reading found = read_some(input_, bytes);
    assembler_.append(bytes);
    asked_at_ = EventLoop::Clock::now();
    ends_alone_.cancel();  // the signal was a notice
    judge_is_late_.set_after(kSilentAfter, [this] { tell_of_judge(/*is_silent=*/true); });
    if (is_judge_silent_) tell_of_judge(/*is_silent=*/false);
    while (auto message = assembler_.next()) {
      auto decoded = protocol::decode_variant<ToRelay>(message->header);
      const auto bytes_of_it = [&] { return message->frames.empty() ? "" : std::move(message->frames.front()); };
      if (const auto* piece = std::get_if<Piece>(&decoded))
        tunnels_.deliver(piece->connection, bytes_of_it());
      else if (const auto* to_ranks = std::get_if<ToRanks>(&decoded))
        session_.take(*to_ranks, std::move(message->frames));
      else if (const auto* file = std::get_if<PutFile>(&decoded))
        put(*file, bytes_of_it());
      else
        std::visit([this](auto&& each) { take(std::forward<decltype(each)>(each)); }, std::move(decoded));
    }
    if (found == Reading::end || found == Reading::failed) is_over_ = true;
  }

  void put(const PutFile& file, const std::string& bytes) {
    arriving_ += bytes;
    write(FileTaken{});
    if (!file.is_last) return;
    const std::string whole = std::exchange(arriving_, {});
    // A name, and no path: nothing is written elsewhere. A rank that does not find the file says so.
    if (!directory_ || file.name.empty() || file.name.find('/') != std::string::npos || file.name.front() == '.')
      return;
    const std::string path = directory_->path() + "/" + file.name;
    if (const int error = protocol::replace_file(path, whole, 0600))
      write(RelayWarning{fmt::format("{} can't write {}: {}", this_host(), path, std::strerror(error))});
  }

  void take(Piece&&) {}  // has bytes, and is taken where they are
  void take(PutFile&&) {}
  void take(ToRanks&&) {}
  void take(StartRanks&& order) {
    if (problem_.empty() && directory_) {
      if (!order.python) stop_listening();
      session_.start(order, *directory_);
    } else
      write(RanksFailed{"ranks have nowhere to come to: " + problem_});
  }
  template <typename OfSession>
  void take(OfSession&& message) {
    session_.take(std::forward<OfSession>(message));
  }

  /// Ranks come to the hub of the shell through a socket in this folder, which is private.
  void listen() {
    clean_prompts(protocol::runtime_directories());
    try {
      directory_ = std::make_unique<SessionDirectory>();
      directory_->describe({{"started", std::time(nullptr)}, {"ranks", 0}, {"backend", "python"}});
    } catch (const StartError& error) {
      problem_ = error.what();
      return;
    }
    const auto address = unix_address(directory_->hub_path());
    listener_ = Descriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!address || ::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address) != 0 ||
        ::listen(listener_.get(), SOMAXCONN) != 0) {
      problem_ = fmt::format("{}: {}", directory_->hub_path(), std::strerror(errno));
      return;
    }
    loop_.watch(listener_.get(), [this] {
      while (true) {
        Descriptor socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
        if (!socket) return;
        write(Piece{.connection = ++connections_, .opens = true});
        tunnels_.open(connections_, std::move(socket));
      }
    });
  }

  /// Ranks of C++ come to a hub of this process instead, at the same place.
  void stop_listening() {
    if (listener_) loop_.forget(listener_.get());
    listener_.reset();
  }

  /// Asks on a thread of its own: a rank may take as long as the limit, and others are asked meanwhile.
  void take(Ask&& ask) {
    std::vector<JobMember> asked;
    for (const int64_t pid : ask.pids)
      if (const auto found = ranks_.find(pid); found != ranks_.end()) asked.push_back(found->second);
    askers_.remove_if([](std::future<void>& each) { return each.wait_for(0s) == std::future_status::ready; });
    askers_.push_back(std::async(std::launch::async, [this, ask = std::move(ask), asked = std::move(asked)] {
      AskAnswer answer{.number = ask.number, .answers = {}};
      if (const auto what = ask.request.value("request", "");
          what == kLogRequest || what == kDigestsRequest || what == kCallRequest)
        for (const JobMember& each : asked) answer.answers[each.facts.rank] = by_log_of(each, ask.request);
      else
        answer.answers = ask_ranks(asked, ask.request, std::chrono::milliseconds(ask.limit_ms));
      write(answer);
    }));
  }

  void take(Ping&& ping) {
    write(Pong{.number = ping.number, .time_ns = realtime_ns(), .monotonic_ns = dist::monotonic_ns()});
    look();
  }

  void take(JudgedElsewhere&& judged) {
    if (!is_of_job(judged.folder)) return;
    judge_ = judged.host;
    const json mine = description_of_judge();
    write_file(judged.folder + "/judge.json", mine);
    // Ranks leave their dumps where somebody watches them.
    if (!fs::exists(judged.folder + "/job.json")) {
      write_file(judged.folder + "/job.json", mine);
      made_.insert(judged.folder);
    }
    judged_.insert(judged.folder);
    for (const auto& [pid, rank] : ranks_) watch_calls(rank);
  }

  json description_of_judge() const {
    return {{"pid", ::getpid()},
            {"start_time", dist::process_start_time(::getpid()).value_or(0)},
            {"host", judge_},
            {"is_silent", is_judge_silent_}};
  }

  void tell_of_judge(bool is_silent) {
    is_judge_silent_ = is_silent;
    for (const std::string& folder : judged_) write_file(folder + "/judge.json", description_of_judge());
  }

  void take(JudgesVerdict&& verdict) {
    if (is_of_job(verdict.folder))
      write_file(verdict.folder + "/verdict.json",
                 {{"exit_code", verdict.exit_code}, {"ends", verdict.ends}, {"host", verdict.host}});
  }

  /// Nothing is written elsewhere, whatever arrives.
  static bool is_of_job(const std::string& folder) {
    return fs::path(folder).filename().string().starts_with(protocol::kJobPrefix) &&
           protocol::private_folder_problem(folder).empty();
  }

  static void write_file(const std::string& path, const json& content) {
    try {
      protocol::write_at_once(path, content.dump() + "\n");
    } catch (const Error&) {  // a full disk: a `lockstep run` there judges for itself
    }
  }

  /// What is written here may have kept a `lockstep run` that ended at the same time from removing its folder.
  void leave(const std::string& folder) {
    std::error_code ignored;
    fs::remove(folder + "/judge.json", ignored);
    if (made_.contains(folder)) fs::remove(folder + "/job.json", ignored);
    if (!read_job(folder).is_alive()) fs::remove_all(folder, ignored);
  }

  const int input_, output_;
  const bool has_hub_;
  EventLoop loop_;
  std::mutex writes_;
  const Descriptor terminations_ = terminations();
  Descriptor new_files_;  // inotify
  RankWatch watch_;
  std::map<int64_t, JobMember> ranks_;  // that run, by pid
  std::set<int64_t> seen_;  // pids
  protocol::MessageAssembler assembler_;
  Tunnels tunnels_;
  Descriptor listener_;
  std::string arriving_;  // what has come of a file
  std::unique_ptr<SessionDirectory> directory_;
  std::string problem_;  // why nobody can come to the hub
  CallWatch calls_;
  SessionRanks session_;
  int64_t connections_ = 0;
  std::list<std::future<void>> askers_;
  std::set<std::string> reported_, judged_, made_;  // folders; made_: whose job.json is written here
  EventLoop::Clock::time_point asked_at_ = EventLoop::Clock::now();
  std::string judge_;  // its machine
  Deadline judge_is_late_{loop_};
  bool is_judge_silent_ = false;  // as those in judged_ are told
  bool said_full_ = false;  // that a disk is
  bool is_asked_to_end_ = false;  // by SIGTERM
  Deadline ends_alone_{loop_};
  std::atomic<bool> is_over_ = false;
};

}  // namespace

int run_relay(int input, int output, bool has_hub) {
  ::signal(SIGPIPE, SIG_IGN);
  return Relay(input, output, has_hub).run();
}

}  // namespace lockstep::shell
