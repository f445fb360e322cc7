#include "shell/processes/store_process.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "collectives/log/marked_processes.h"
#include "protocol/error.h"
#include "shell/processes/deaths.h"

namespace lockstep::shell {
namespace {

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
  constexpr std::chrono::seconds kLoopbackLimit{5};
  int error = ETIMEDOUT;
  socklen_t size = sizeof error;
  if (is_ready(client.get(), POLLOUT, kLoopbackLimit)) ::getsockopt(client.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) fail(error);
  // The store is to find no connection of ours.
  const Descriptor server(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
}

/// Returns a listening socket on an address of this machine, with a port that the kernel chose.
Descriptor listen_on(const std::string& text, int& port) {
  Descriptor fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  ::inet_pton(AF_INET, text.c_str(), &address.sin_addr);
  socklen_t size = sizeof address;
  if (!fd || ::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size) != 0 || ::listen(fd.get(), SOMAXCONN) != 0 ||
      ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0)
    throw StartError("no socket for the store could be opened on " + text + ": " + std::strerror(errno) +
                     (text == kLoopback ? "; is the loopback interface up (ip link set lo up)?" : ""));
  if (text == kLoopback) check_loopback(fd, address);
  port = ntohs(address.sin_port);
  return fd;
}

}  // namespace

StoreProcess::StoreProcess(EventLoop& loop, const SessionDirectory& directory, const std::string& address,
                           std::function<void(const std::string&, const std::string&)> ended)
    : loop_(loop),
      directory_(directory.path()),
      mark_("LOCKSTEP_SESSION_DIR=" + directory_),
      address_(address),
      ended_(std::move(ended)),
      listener_(listen_on(address_, port_)),
      keeper_line_(make_pipe()) {
  // Nothing may block the session: a keeper that does not read is one that has ended.
  set_nonblocking(keeper_line_.write.get());
}

StoreProcess::~StoreProcess() {
  if (!process_) return;
  loop_.forget(tail_.fd());
  loop_.forget(process_->pidfd());
  dist::end_marked_processes({mark_}, {process_->pid()});
}

void StoreProcess::start(Launch launch) {
  launch.arguments.emplace_back("--store");
  launch.outlives_slurm_signals = true;
  launch.environment.insert({{"LOCKSTEP_LIFELINE_FD", std::to_string(keeper_line_.read.get())},
                             {"LOCKSTEP_LISTEN_FD", std::to_string(listener_.get())},
                             {"LOCKSTEP_SESSION_DIR", directory_}});
  launch.inherit = {keeper_line_.read.get(), listener_.get()};
  launch.output = tail_.write_end();
  // It has to be there for a moment after the shell was killed, to end what workers may have left behind.
  launch.dies_with_shell = false;
  has_started(std::make_unique<Child>(launch));
}

protocol::CopyOrder StoreProcess::copy_order() const {
  return {.environment = {{"LOCKSTEP_SESSION_DIR", directory_}},
          .output = tail_.write_end(),
          .lifeline = keeper_line_.read.get(),
          .listener = listener_.get()};
}

void StoreProcess::has_started(std::unique_ptr<Child> process) {
  process_ = std::move(process);
  tail_.close_write_end();
  keeper_line_.read.reset();
  listener_.reset();
  loop_.watch(tail_.fd(), [this] {
    if (!tail_.take()) loop_.forget(tail_.fd());
  });
  loop_.watch(process_->pidfd(), [this] {
    const auto end = process_->ended();
    if (!end) return;
    has_ended_ = true;
    ended_(end->str() + "; it listened on " + this->address() + load_failure_words(*end), tail_.last_lines());
    loop_.forget(process_->pidfd());
  });
}

void StoreProcess::rank_has_ended(int rank, pid_t pid, bool session_ends) {
  if (!session_ends) dist::end_marked_processes({mark_, "LOCKSTEP_RANK=" + std::to_string(rank)});
  tell("-" + std::to_string(pid));
}

void StoreProcess::tell(const std::string& line) {
  const std::string text = line + "\n";
  (void)!::write(keeper_line_.write.get(), text.data(), text.size());
}

}  // namespace lockstep::shell
