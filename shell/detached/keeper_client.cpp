#include "shell/detached/keeper_client.h"

#include <sys/socket.h>

#include <algorithm>
#include <utility>

namespace lockstep::shell {
namespace {

constexpr std::chrono::seconds kHelloLimit{5};  // a connection that says nothing is closed
constexpr std::chrono::seconds kStalled{5};  // a terminal that takes nothing is shown the rest later
constexpr std::chrono::seconds kLeaveLimit{2};  // for the last words to a slow terminal
constexpr int kSendBuffer = 32 << 10;  // what Ctrl-C can't take back on a slow terminal

}  // namespace

KeeperClient::KeeperClient(Descriptor socket) : socket_(std::move(socket)) {
  ::setsockopt(socket_.get(), SOL_SOCKET, SO_SNDBUF, &kSendBuffer, sizeof kSendBuffer);
  set_nonblocking(socket_.get());
}

void KeeperClient::accept(TerminalHello hello) {
  part_ = hello.asks == Asks::watch ? Part::watches : Part::types;
  hello_ = std::move(hello);
}

void KeeperClient::show(std::string_view bytes) {
  if (is_behind_ || is_notebook() || !(types() || watches())) return;
  if (unsent_.empty()) since_ = Clock::now();
  unsent_ += bytes;
  send(Mail::output, unsent_);
  if (!watches() || unsent_.empty()) return;
  unsent_.clear();
  is_behind_ = true;
}

void KeeperClient::leave(const LeaveTerminal& words) {
  part_ = Part::leaves;
  since_ = Clock::now();
  is_behind_ = false;
  last_words_ = json_text(words);
  flush();
}

KeeperClient::Change KeeperClient::flush() {
  if (is_gone_) return Change::none;
  if (is_behind_) {
    if (!is_ready(socket_.get(), POLLOUT)) return Change::none;
    is_behind_ = false;
    return Change::takes_again;
  }
  send(Mail::output, unsent_);
  if (unsent_.empty() && !last_words_.empty()) {
    send(Mail::leave, last_words_);
    is_gone_ = is_gone_ || last_words_.empty();
  }
  const auto until = limit();
  if (!until || Clock::now() < *until) return Change::none;
  if (!types()) {
    is_gone_ = true;
    return Change::none;
  }
  unsent_.clear();
  is_behind_ = true;
  return Change::falls_behind;
}

/// Sends as much as there is room for, and takes it out of `bytes`.
void KeeperClient::send(Mail kind, std::string& bytes) {
  while (!bytes.empty() && !is_gone_) {
    if (!send_mail(socket_.get(), kind, bytes)) {
      is_gone_ = errno != EAGAIN;
      return;
    }
    bytes.erase(0, kMostMail);
    if (types()) since_ = Clock::now();
  }
}

std::optional<KeeperClient::Clock::time_point> KeeperClient::limit() const {
  if (is_stranger()) return since_ + kHelloLimit;
  if (!last_words_.empty()) return since_ + kLeaveLimit;
  if (holds_up()) return since_ + kStalled;
  return std::nullopt;
}

}  // namespace lockstep::shell
