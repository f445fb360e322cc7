#include "shell/detached/keeper.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <ctime>
#include <functional>
#include <list>
#include <memory>
#include <vector>

#include "protocol/read_struct.h"
#include "shell/detached/keeper_client.h"
#include "shell/detached/mark_filter.h"
#include "shell/detached/messages.h"
#include "shell/detached/session_socket.h"
#include "shell/processes/signal_scope.h"

namespace lockstep::shell {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kMarkLimit{2}, kNotebookLimit{5};  // a session that is in an editor does not answer
constexpr std::chrono::seconds kEndLimit{60};  // for a session that was asked to end
constexpr auto kMostStrangers = 16, kMostWatchers = 64;
constexpr size_t kMostKeys = 64 << 10;  // that wait for the session
constexpr size_t kMostLastBytes = 1 << 20;  // that a session has written before its end

class Keeper {
 public:
  Keeper(Descriptor master, Descriptor session, pid_t pid, Descriptor first, std::chrono::seconds time)
      : master_(std::move(master)), session_(std::move(session)), pid_(pid), process_(open_process(pid)), time_(time) {
    set_nonblocking(master_.get());
    sigset_t set;
    ::sigemptyset(&set);
    for (const int signal : kEndingSignals) ::sigaddset(&set, signal);
    ::sigaddset(&set, SIGINT);
    ::sigprocmask(SIG_BLOCK, &set, nullptr);
    signals_ = Descriptor(::signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
    clients_.emplace_back(std::move(first));
    since_ = std::time(nullptr);
    deadline_ = Clock::now() + time_;  // until somebody is attached
  }

  void run() {
    while (!has_ended()) {
      wait();
      take_signals();
      take_session();
      take_master();
      if (socket_)
        while (Descriptor socket = socket_->accept()) clients_.emplace_back(std::move(socket));
      for (KeeperClient& each : clients_) take(each);
      give_up_mark();
      write_keys();
      for (KeeperClient& each : clients_) flush(each);
      drop_the_gone();
      if (deadline_ && Clock::now() >= *deadline_) end_session();
    }
    finish();
  }

 private:
  // ---- Waiting ------------------------------------------------------------------------------------------------------

  void wait() {
    std::vector<pollfd> polled = {
        {process_.get(), POLLIN, 0},
        {signals_.get(), POLLIN, 0},
        {session_.get(), POLLIN, 0},
        {master_is_open_ ? master_.get() : -1, master_events(), 0},
        {socket_ && std::ranges::count_if(clients_, &KeeperClient::is_stranger) < kMostStrangers
             ? socket_->listener.get()
             : -1,
         POLLIN, 0}};
    std::optional<Clock::time_point> until = deadline_;
    const auto by = [&](Clock::time_point time) { until = until ? std::min(*until, time) : time; };
    for (const KeeperClient& each : clients_) {
      const int events =
          (!each.types() || keys_.size() < kMostKeys ? POLLIN : 0) | (each.waits_for_room() ? POLLOUT : 0);
      polled.push_back({each.socket(), static_cast<short>(events), 0});
      if (const auto limit = each.limit()) by(*limit);
    }
    if (const auto when = filter_.when_to_give_up()) by(*when);
    poll_until(polled, until);
    size_t at = polled.size() - clients_.size();
    for (KeeperClient& each : clients_) {  // one that is not read from has to be seen to end, too
      const pollfd& found = polled[at++];
      if ((found.events & POLLIN) == 0 && (found.revents & (POLLHUP | POLLERR)) != 0) each.close();
    }
  }

  short master_events() const {
    const bool is_held = std::ranges::any_of(clients_, &KeeperClient::holds_up);
    return static_cast<short>((is_held ? 0 : POLLIN) | (keys_.empty() ? 0 : POLLOUT));
  }

  bool has_ended() {
    int status = 0;
    const pid_t ended = uninterrupted([&] { return ::waitpid(pid_, &status, WNOHANG); });
    if (ended == 0) return false;
    if (ended == pid_) exit_code_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    return true;
  }

  // ---- From the system and the session ------------------------------------------------------------------------------

  /// What asks this process to end asks its session: it knows what has to be saved.
  void take_signals() {
    signalfd_siginfo signal = {};
    while (read_all(signals_.get(), &signal, sizeof signal) == static_cast<ssize_t>(sizeof signal))
      signal_process(process_.get(), static_cast<int>(signal.ssi_signo));
  }

  void take_session() {
    for (;;) {
      const Received mail = receive_mail(session_.get());
      if (mail.found == Reading::end || mail.found == Reading::failed) session_.reset();
      if (mail.found != Reading::bytes) return;
      if (mail.kind == Mail::opened && !socket_) {
        id_ = protocol::read_struct<OpenedSession>(mail.body).value_or(OpenedSession()).id;
        open_socket();
      } else if (mail.kind == Mail::detach && !alone_.empty()) {
        send_mail(session_.get(), Mail::alone, alone_);
      } else if (mail.kind == Mail::detach && typing_) {
        if (const auto order = protocol::read_struct<DetachTerminal>(mail.body); order && order->seconds)
          time_ = std::chrono::seconds(*order->seconds);
        // What was drawn before %detach is not drawn again.
        for (size_t taken = 0; taken < kMostLastBytes && read_master(); taken += kMostMail) continue;
        const bool is_notebook = typing_->is_notebook();
        let_go(*typing_,
               fmt::format("the session {} goes on without a {} until {}; {}", id_,
                           is_notebook ? "notebook" : "terminal", clock_text(std::time(nullptr) + time_.count()),
                           is_notebook ? "the next cell comes back to it" : "lockstep --resume " + id_),
               /*is_detached=*/true);
      }
    }
  }

  /// Without it the session is as one that was not started as detachable, and ends with its terminal.
  void open_socket() {
    try {
      socket_ = std::make_unique<SessionSocket>(id_);
    } catch (const std::exception& error) {
      alone_ = error.what();
      send_mail(session_.get(), Mail::alone, alone_);
      time_ = std::chrono::seconds(0);
    }
  }

  /// Passes on what the session draws. Nobody there: it is in the journal.
  void take_master() {
    if ((master_events() & POLLIN) != 0) read_master();
  }

  /// Returns whether there was something.
  bool read_master() {
    if (!master_is_open_) return false;
    std::string bytes;
    const Reading found = read_some(master_.get(), bytes, kMostMail);
    if (found == Reading::failed || found == Reading::end) master_is_open_ = false;  // all of its processes have ended
    if (found == Reading::bytes) pass_on(std::move(bytes));
    return found == Reading::bytes;
  }

  /// What was drawn before a terminal came is not for it. Its session draws that anew, after a mark.
  void pass_on(std::string bytes) {
    bytes = filter_.pass(std::move(bytes));
    for (KeeperClient& each : clients_) each.show(bytes);
  }

  /// A session that does not answer has given its terminal to an editor or a pager, which draws itself again.
  void give_up_mark() {
    const auto when = filter_.when_to_give_up();
    if (!when || Clock::now() < *when) return;
    if (typing_ && typing_->is_notebook())
      return let_go(*typing_, fmt::format("the session {} does not answer: where an editor or a pager is open in it, "
                                          "lockstep --resume {} shows it",
                                          id_, id_));
    filter_.give_up();
    if (const pid_t group = ::tcgetpgrp(master_.get()); group > 0) ::kill(-group, SIGWINCH);
  }

  // ---- To and from terminals ----------------------------------------------------------------------------------------

  /// One that takes nothing for long must not hold the session up.
  void flush(KeeperClient& client) {
    const KeeperClient::Change change = client.flush();
    if (change == KeeperClient::Change::falls_behind) send_mail(session_.get(), Mail::lost);
    if (change != KeeperClient::Change::takes_again) return;
    if (client.types())
      join(0);
    else
      client.show("\r\n...\r\n");
  }

  void take(KeeperClient& client) {
    while (!client.is_gone() && (!client.types() || keys_.size() < kMostKeys)) {
      const Received mail = receive_mail(client.socket());
      if (mail.found == Reading::empty) break;
      if (mail.found != Reading::bytes) {
        client.close();
      } else if (client.is_stranger() && mail.kind == Mail::hello) {
        greet(client, protocol::read_struct<TerminalHello>(mail.body).value_or(TerminalHello()), mail.descriptor);
      } else if (client.types() && mail.kind == Mail::keys) {
        keys_ += mail.body;
        write_keys();
      } else if (client.types() && mail.kind == Mail::size) {
        set_size(protocol::read_struct<TerminalSize>(mail.body).value_or(TerminalSize()));
      } else if (client.types() && mail.kind == Mail::redraw) {
        join(0);
      }
    }
  }

  /// Returns why the terminal can't be taken; empty: it can.
  std::string problem_of(const TerminalHello& hello) const {
    if (hello.asks == Asks::state) return "";
    if (is_ending_) return "the session " + id_ + " ends: nobody has come back in time";
    if (hello.protocol != kProtocolVersion) return words_of_other_version(id_);
    if (hello.asks == Asks::watch && std::ranges::count_if(clients_, &KeeperClient::watches) >= kMostWatchers)
      return fmt::format("{} terminals look at the session {} already", kMostWatchers, id_);
    const bool is_notebook = hello.asks == Asks::notebook;
    if (hello.asks != Asks::type && !is_notebook) return "";
    if (typing_ && !hello.takes_over)
      return fmt::format("the session {} is attached: {}, since {}. {}", id_, typing_->hello().name, clock_text(since_),
                         is_notebook ? "%resume --take-over in a cell takes it from there"
                                     : "--watch looks on, --take-over takes it from there");
    if (!is_notebook && was_attached_ && can_edit_ && hello.type == "dumb")
      return "the session " + id_ + " draws by moving the cursor, and TERM=dumb says that this terminal can't";
    return "";
  }

  /// `notebook`: through which the session is to talk with one.
  void greet(KeeperClient& client, TerminalHello hello, const Descriptor& notebook) {
    KeeperAnswer answer = state();
    answer.problem = problem_of(hello);
    answer.is_accepted = answer.problem.empty() && (hello.asks == Asks::type || hello.asks == Asks::watch ||
                                                    (hello.asks == Asks::notebook && notebook));
    const int64_t lost_since = was_attached_ && !typing_ ? since_ : 0;
    if (answer.is_accepted && hello.asks != Asks::watch && typing_)  // before anybody knows of the next one
      let_go(*typing_, fmt::format("{} has taken the session {} over; {} takes it back", hello.name, id_,
                                   typing_->is_notebook() ? "%resume --take-over in a cell"
                                                          : "lockstep --resume " + id_ + " --take-over"));
    if (!send_json(client.socket(), Mail::answer, answer) || !answer.is_accepted) return client.close();
    client.accept(std::move(hello));
    if (client.watches()) {
      send_mail(session_.get(), Mail::watched, client.hello().name + " watches");
      return;
    }
    typing_ = &client;
    since_ = std::time(nullptr);
    deadline_.reset();
    if (client.is_notebook()) return join(lost_since, notebook);
    set_size(client.hello().size);
    if (was_attached_) join(lost_since);
    can_edit_ = was_attached_ ? can_edit_ : client.hello().type != "dumb";
    was_attached_ = true;
  }

  /// Has the session draw for the terminal what it needs to know, and nothing before it. For a notebook it draws only the
  /// mark, by which it answers.
  void join(int64_t lost_since, const Descriptor& notebook = {}) {
    const TerminalHello& hello = typing_->hello();
    typing_->drop_unsent();
    const std::string mark = filter_.begin(Clock::now() + (notebook ? kNotebookLimit : kMarkLimit));
    const NewTerminal terminal{.mark = mark, .type = hello.type, .since = lost_since, .key = hello.key};
    if (!send_json(session_.get(), Mail::attached, terminal, notebook) && !notebook) filter_.end();
  }

  void set_size(const TerminalSize& size) const {
    winsize given = {};
    given.ws_col = static_cast<unsigned short>(std::clamp(size.columns, 0, 10000));
    given.ws_row = static_cast<unsigned short>(std::clamp(size.rows, 0, 10000));
    ::ioctl(master_.get(), TIOCSWINSZ, &given);
  }

  void write_keys() {
    while (!keys_.empty()) {
      const ssize_t count = uninterrupted([&] { return ::write(master_.get(), keys_.data(), keys_.size()); });
      if (count <= 0) return;
      keys_.erase(0, static_cast<size_t>(count));
    }
  }

  void let_go(KeeperClient& client, const std::string& text, bool is_detached = false) {
    client.leave({.text = text, .exit_code = 0, .is_detached = is_detached});
    if (&client == typing_) lose_typing();
  }

  void drop_the_gone() {
    if (typing_ && typing_->is_gone()) lose_typing();
    std::erase_if(clients_, std::mem_fn(&KeeperClient::is_gone));
  }

  void lose_typing() {
    typing_ = nullptr;
    since_ = std::time(nullptr);
    deadline_ = Clock::now() + time_;
    keys_.clear();
    filter_.end();
    start_output();
    send_mail(session_.get(), Mail::lost);
  }

  /// Ends what Ctrl-S on the terminal that is gone has begun.
  void start_output() {
    const Descriptor terminal(::ioctl(master_.get(), TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC));
    termios settings = {};
    if (terminal && ::tcgetattr(terminal.get(), &settings) == 0 && (settings.c_iflag & IXON) != 0)
      keys_ = std::string(1, static_cast<char>(settings.c_cc[VSTART]));
  }

  KeeperAnswer state() const {
    return {.protocol = kProtocolVersion,
            .problem = {},
            .id = id_,
            .pid = pid_,
            .terminal = typing_ ? typing_->hello().name : "",
            .since = since_,
            .until = typing_ ? 0 : std::time(nullptr) + left_s(),
            .watchers = static_cast<int>(std::ranges::count_if(clients_, &KeeperClient::watches))};
  }

  int64_t left_s() const {
    if (!deadline_) return 0;
    return std::max<int64_t>(0, std::chrono::ceil<std::chrono::seconds>(*deadline_ - Clock::now()).count());
  }

  // ---- The end ------------------------------------------------------------------------------------------------------

  void end_session() {
    if (!is_ending_) {
      send_mail(session_.get(), Mail::over,
                fmt::format("nobody has come back since {}: the session ends", clock_text(since_)));
      hang_up();
    } else {
      signal_process(process_.get(), SIGKILL);
    }
    is_ending_ = true;
    deadline_ = Clock::now() + kEndLimit;
  }

  /// Hangs up as the kernel does where a terminal is lost: an editor or a pager that has the terminal ends, too.
  void hang_up() const {
    const pid_t group = ::tcgetpgrp(master_.get());
    if (group > 0) ::kill(-group, SIGHUP);
    if (group > 0) ::kill(-group, SIGCONT);
    if (group != pid_) signal_process(process_.get(), SIGHUP);
  }

  /// The session has ended. What it has written, and how it ended, goes to all.
  void finish() {
    for (KeeperClient& each : clients_) take(each);
    filter_.give_up();  // no mark comes any more
    std::string last;
    while (last.size() < kMostLastBytes && read_some(master_.get(), last, kMostMail) == Reading::bytes) continue;
    socket_.reset();
    for (size_t at = 0; at < last.size(); at += kMostMail) pass_on(last.substr(at, kMostMail));
    for (KeeperClient& each : clients_) {
      if (!each.types() && !each.watches()) continue;
      const std::string missed = "the end of the session is not shown here: lockstep sessions show " + id_;
      each.leave({each.is_behind() ? missed : "", each.types() ? exit_code_ : 0});
    }
    std::erase_if(clients_, std::mem_fn(&KeeperClient::is_stranger));
    for (;;) {  // each has a limit of its own
      for (KeeperClient& each : clients_) each.flush();
      std::erase_if(clients_, std::mem_fn(&KeeperClient::is_gone));
      if (clients_.empty()) return;
      std::vector<pollfd> polled;
      std::optional<Clock::time_point> until;
      for (const KeeperClient& each : clients_) {
        polled.push_back({each.socket(), POLLOUT, 0});
        until = std::min(until.value_or(Clock::time_point::max()), each.limit().value_or(Clock::time_point::max()));
      }
      poll_until(polled, until);
    }
  }

  Descriptor master_, session_;
  const pid_t pid_;
  Descriptor process_, signals_;
  std::chrono::seconds time_;
  std::string id_, alone_;  // why nobody else can come
  std::unique_ptr<SessionSocket> socket_;  // once the session has an id
  std::list<KeeperClient> clients_;
  KeeperClient* typing_ = nullptr;
  int64_t since_ = 0;  // that somebody types, or nobody
  bool was_attached_ = false, can_edit_ = false;
  std::optional<Clock::time_point> deadline_;  // the session ends then
  bool is_ending_ = false;
  bool master_is_open_ = true;
  std::string keys_;  // that the session has no room for
  MarkFilter filter_;
  int exit_code_ = 1;
};

}  // namespace

void keep_session(Descriptor master, Descriptor session, pid_t pid, Descriptor first, std::chrono::seconds time) {
  Keeper(std::move(master), std::move(session), pid, std::move(first), time).run();
}

}  // namespace lockstep::shell
