#include "shell/detached/keeper.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <ctime>
#include <list>
#include <memory>
#include <vector>

#include "shell/detached/mark_filter.h"
#include "shell/detached/messages.h"
#include "shell/detached/session_socket.h"
#include "shell/processes/signal_scope.h"

namespace lockstep::shell {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kHelloLimit{5};  // a connection that says nothing is closed
constexpr std::chrono::seconds kStalled{5};  // a terminal that takes nothing is shown the rest later
constexpr std::chrono::seconds kMarkLimit{2};  // a session that is in an editor does not answer
constexpr std::chrono::seconds kLastLimit{2};  // for the last words of a session to a slow terminal
constexpr std::chrono::seconds kEndLimit{60};  // for a session that was asked to end
constexpr size_t kMostClients = 16;
constexpr size_t kMostKeys = 64 << 10;  // that wait for the session
constexpr int kSendBuffer = 32 << 10;  // what Ctrl-C can't take back on a slow terminal

struct Client {
  Descriptor socket;
  TerminalHello hello;  // `asks` is empty until it has come
  Clock::time_point since = Clock::now();
  std::string unsent;  // output that it has no room for
  bool is_behind = false;  // and has not had for long, or only looks on: it gets none until it has
  bool is_gone = false;

  bool types() const { return hello.asks == "type"; }
  bool watches() const { return hello.asks == "watch"; }
};

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
    set_nonblocking(first.get());
    add(std::move(first));
    since_ = std::time(nullptr);
  }

  void run() {
    while (!has_ended()) {
      wait();
      take_signals();
      take_session();
      take_master();
      if (socket_)
        while (Descriptor socket = socket_->accept()) add(std::move(socket));
      for (Client& each : clients_) take(each);
      give_up_mark();
      write_keys();
      for (Client& each : clients_) flush(each);
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
        {socket_ && clients_.size() < kMostClients ? socket_->listener.get() : -1, POLLIN, 0}};
    std::optional<Clock::time_point> until = deadline_;
    const auto by = [&](Clock::time_point time) { until = until ? std::min(*until, time) : time; };
    for (const Client& each : clients_) {
      const bool takes_keys = !each.types() || keys_.size() < kMostKeys;
      const bool waits = !each.unsent.empty() || each.is_behind;
      polled.push_back({each.socket.get(), static_cast<short>((takes_keys ? POLLIN : 0) | (waits ? POLLOUT : 0)), 0});
      if (each.hello.asks.empty()) by(each.since + kHelloLimit);
      if (!each.unsent.empty()) by(each.since + kStalled);
    }
    if (const auto when = filter_.when_to_give_up()) by(*when);
    poll_until(polled, until);
    size_t at = polled.size() - clients_.size();
    for (Client& each : clients_) {  // one that is not read from has to be seen to end, too
      const pollfd& found = polled[at++];
      if ((found.events & POLLIN) == 0 && (found.revents & (POLLHUP | POLLERR)) != 0) each.is_gone = true;
    }
  }

  short master_events() const {
    const bool is_held = std::ranges::any_of(clients_, [](const Client& each) { return !each.unsent.empty(); });
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
        id_ = read_json<OpenedSession>(mail.body).value_or(OpenedSession()).id;
        open_socket();
      } else if (mail.kind == Mail::detach && typing_) {
        if (const auto order = read_json<DetachTerminal>(mail.body); order && order->seconds)
          time_ = std::chrono::seconds(*order->seconds);
        let_go(*typing_, fmt::format("the session {} goes on without a terminal until {}; lockstep --resume {}", id_,
                                     clock_text(std::time(nullptr) + time_.count()), id_));
      }
    }
  }

  /// Without it the session is as one that was not started as detachable, and ends with its terminal.
  void open_socket() {
    try {
      socket_ = std::make_unique<SessionSocket>(id_);
    } catch (const std::exception& error) {
      send_mail(session_.get(), Mail::watched, error.what());
      time_ = std::chrono::seconds(0);
    }
  }

  /// Passes on what the session draws. Nobody there: it is in the journal.
  void take_master() {
    if ((master_events() & POLLIN) == 0 || !master_is_open_) return;
    std::string bytes;
    const Reading found = read_some(master_.get(), bytes, kMostMail);
    if (found == Reading::failed || found == Reading::end) master_is_open_ = false;  // all of its processes have ended
    if (found == Reading::bytes) pass_on(std::move(bytes));
  }

  /// What was drawn before a terminal came is not for it. Its session draws that anew, after a mark.
  void pass_on(std::string bytes) {
    bytes = filter_.pass(std::move(bytes));
    if (bytes.empty()) return;
    for (Client& each : clients_)
      if ((each.types() || each.watches()) && !each.is_behind) send_output(each, bytes);
  }

  /// A session that does not answer has given its terminal to an editor or a pager, which draws itself again.
  void give_up_mark() {
    const auto when = filter_.when_to_give_up();
    if (!when || Clock::now() < *when) return;
    filter_.give_up();
    if (const pid_t group = ::tcgetpgrp(master_.get()); group > 0) ::kill(-group, SIGWINCH);
  }

  // ---- To and from terminals ----------------------------------------------------------------------------------------

  void add(Descriptor socket) {
    ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDBUF, &kSendBuffer, sizeof kSendBuffer);
    clients_.push_back({.socket = std::move(socket), .hello = {}, .unsent = {}});
  }

  void send_output(Client& client, const std::string& bytes) {
    if (send_mail(client.socket.get(), Mail::output, bytes)) return;
    if (errno != EAGAIN) {
      client.is_gone = true;
      return;
    }
    if (client.watches()) {  // it holds nobody up
      client.is_behind = true;
      return;
    }
    client.since = Clock::now();
    client.unsent = bytes;
  }

  /// Sends what there was no room for. One that takes nothing for long must not hold the session up.
  void flush(Client& client) {
    if (client.is_gone) return;
    if (client.is_behind) {
      if (!is_ready(client.socket.get(), POLLOUT)) return;
      client.is_behind = false;
      if (client.types()) join(0);
      if (client.watches()) send_output(client, "\r\n...\r\n");
      return;
    }
    if (client.unsent.empty()) return;
    if (send_mail(client.socket.get(), Mail::output, client.unsent)) {
      client.unsent.clear();
    } else if (Clock::now() >= client.since + kStalled) {
      client.unsent.clear();
      client.is_behind = true;
      send_mail(session_.get(), Mail::lost);
    }
  }

  void take(Client& client) {
    while (!client.is_gone && (!client.types() || keys_.size() < kMostKeys)) {
      const Received mail = receive_mail(client.socket.get());
      if (mail.found == Reading::empty) break;
      if (mail.found != Reading::bytes) {
        client.is_gone = true;
      } else if (mail.kind == Mail::hello && client.hello.asks.empty()) {
        greet(client, read_json<TerminalHello>(mail.body).value_or(
                          TerminalHello{.asks = "nothing", .name = {}, .type = {}, .size = {}}));
      } else if (client.types() && mail.kind == Mail::keys) {
        keys_ += mail.body;
        write_keys();
      } else if (client.types() && mail.kind == Mail::size) {
        set_size(read_json<TerminalSize>(mail.body).value_or(TerminalSize()));
      } else if (client.types() && mail.kind == Mail::redraw) {
        join(0);
      }
    }
    if (client.hello.asks.empty() && Clock::now() >= client.since + kHelloLimit) client.is_gone = true;
  }

  void greet(Client& client, TerminalHello hello) {
    client.hello = std::move(hello);
    KeeperAnswer answer = state();
    if (is_ending_)
      answer.problem = "the session " + id_ + " ends: nobody has come back in time";
    else if (client.types() && typing_ && !client.hello.takes_over)
      answer.problem =
          fmt::format("the session {} is attached: {}, since {}. --watch looks on, --take-over takes it from there",
                      id_, typing_->hello.name, clock_text(since_));
    else if (client.types() && was_attached_ && can_edit_ && client.hello.type == "dumb")
      answer.problem =
          "the session " + id_ + " draws by moving the cursor, and TERM=dumb says that this terminal can't";
    answer.is_accepted = answer.problem.empty() && (client.types() || client.watches());
    const bool types = client.types();
    client.is_gone = !send_json(client.socket.get(), Mail::answer, answer) || !answer.is_accepted;
    if (client.is_gone) {
      client.hello.asks = "nothing";
      return;
    }
    if (!types) {
      send_mail(session_.get(), Mail::watched, client.hello.name + " watches");
      return;
    }
    if (typing_)
      let_go(*typing_, fmt::format("{} has taken the session {} over; lockstep --resume {} --take-over takes it back",
                                   client.hello.name, id_, id_));
    const int64_t lost_since = was_attached_ ? since_ : 0;
    typing_ = &client;
    since_ = std::time(nullptr);
    deadline_.reset();
    set_size(client.hello.size);
    if (was_attached_) join(lost_since);
    can_edit_ = was_attached_ ? can_edit_ : client.hello.type != "dumb";
    was_attached_ = true;
  }

  /// Has the session draw for the terminal what it needs to know, and nothing before it.
  void join(int64_t lost_since) {
    for (Client& each : clients_) each.unsent.clear();
    const std::string mark = filter_.begin(Clock::now() + kMarkLimit);
    if (!send_json(session_.get(), Mail::attached,
                   NewTerminal{.mark = mark, .type = typing_->hello.type, .since = lost_since}))
      filter_.end();
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

  void let_go(Client& client, const std::string& text) {
    flush(client);
    send_json(client.socket.get(), Mail::leave, LeaveTerminal{text, 0});
    client.is_gone = true;
    if (&client == typing_) lose_typing();
  }

  void drop_the_gone() {
    if (typing_ && typing_->is_gone) lose_typing();
    std::erase_if(clients_, [](const Client& each) { return each.is_gone; });
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
    return {.problem = {},
            .id = id_,
            .pid = pid_,
            .terminal = typing_ ? typing_->hello.name : "",
            .since = since_,
            .until = typing_ ? 0 : std::time(nullptr) + left_s(),
            .watchers = static_cast<int>(std::ranges::count_if(clients_, &Client::watches))};
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
      signal_process(process_.get(), SIGHUP);
    } else {
      signal_process(process_.get(), SIGKILL);
    }
    is_ending_ = true;
    deadline_ = Clock::now() + kEndLimit;
  }

  /// The session has ended. Its last words, and how it ended, go to all.
  void finish() {
    const auto until = Clock::now() + kLastLimit;
    for (Client& each : clients_) take(each);
    filter_.give_up();  // no mark comes any more
    std::string last;
    while (read_some(master_.get(), last, kMostMail) == Reading::bytes && last.size() < (1 << 20)) continue;
    socket_.reset();
    for (size_t at = 0; at < last.size(); at += kMostMail) {
      pass_on(last.substr(at, kMostMail));
      for (Client& each : clients_) drain(each, until);
    }
    for (Client& each : clients_) {
      drain(each, until);
      if (!each.types() && !each.watches()) continue;
      send_json(each.socket.get(), Mail::leave, LeaveTerminal{"", each.types() ? exit_code_ : 0});
    }
  }

  void drain(Client& client, Clock::time_point until) {
    while (!client.unsent.empty() && !client.is_gone && !client.is_behind) {
      pollfd polled{client.socket.get(), POLLOUT, 0};
      if (poll_until({&polled, 1}, until) <= 0) return;
      flush(client);
    }
  }

  Descriptor master_, session_;
  const pid_t pid_;
  Descriptor process_, signals_;
  std::chrono::seconds time_;
  std::string id_;
  std::unique_ptr<SessionSocket> socket_;  // once the session has an id
  std::list<Client> clients_;
  Client* typing_ = nullptr;
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
