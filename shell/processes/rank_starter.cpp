#include "shell/processes/rank_starter.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>

#include <string>
#include <tuple>
#include <utility>

#include "protocol/descriptor_messages.h"
#include "protocol/error.h"

namespace lockstep::shell {
namespace {

using namespace std::chrono_literals;

// Past these it is stopped, or stuck: ranks that load LibTorch themselves come sooner.
constexpr auto kLoadPatience = 30s;
constexpr auto kCopyPatience = 5s;
constexpr auto kEndPatience = 1s;  // for what takes a moment

}  // namespace

RankStarter::RankStarter(EventLoop& loop, Launch launch, Listener listener)
    : loop_(loop), listener_(std::move(listener)) {
  Descriptor theirs;
  std::tie(channel_, theirs) = make_message_sockets();
  set_nonblocking(channel_.get());
  // Where it fails, so do ranks that are started one by one, and say why.
  const Descriptor nobody(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  launch.arguments = {"--ranks", std::to_string(theirs.get())};
  launch.inherit = {theirs.get()};
  launch.output = nobody.get();
  launch.outlives_slurm_signals = true;
  process_ = std::make_unique<Child>(launch);
  loop_.watch(channel_.get(), [this] { take_answer(); });
}

RankStarter::~RankStarter() {
  if (works()) end();
}

void RankStarter::start(protocol::CopyOrder order) {
  orders_.push_back(std::move(order));
  send_orders();
}

void RankStarter::send_orders() {
  for (; !orders_.empty() && protocol::send(channel_.get(), orders_.front()); orders_.pop_front()) ++unanswered_;
  // Where the socket takes no more of them, the next answer says that there is room again.
  if (!orders_.empty() && unanswered_ == 0) return give_up(ProcessEnd{});
  patience_.cancel();
  if (unanswered_ > 0) patience_.set_after(has_answered_ ? kCopyPatience : kLoadPatience, [this] { give_up({}); });
}

void RankStarter::take_answer() {
  protocol::Copied copied;
  const Reading found = protocol::receive(channel_.get(), copied);
  if (found == Reading::empty) return;
  if (found != Reading::bytes) return give_up(process_->ended_within(kEndPatience));
  --unanswered_;
  has_answered_ = true;
  std::unique_ptr<Child> process;
  try {
    process = std::make_unique<Child>(copied.pid);
  } catch (const StartError&) {
    return give_up(ProcessEnd{});  // this process has no descriptors left: starting one by one says so
  }
  listener_.started(copied.rank, std::move(process));
  send_orders();
}

void RankStarter::give_up(const std::optional<ProcessEnd>& end) {
  this->end();
  listener_.failed(end);
}

/// Ends copies as well whose answer has not been taken.
void RankStarter::end() {
  patience_.cancel();
  orders_.clear();
  process_->finish();
  loop_.forget(channel_.get());
  // Copies that were not yet leaders of a group of their own have been ended with it. Nobody else reaps them.
  while (uninterrupted([this] { return ::waitpid(-process_->pid(), nullptr, 0); }) > 0) {
  }
  protocol::Copied copied;
  while (is_ready(channel_.get(), POLLIN, kEndPatience) && protocol::receive(channel_.get(), copied) == Reading::bytes)
    try {
      const Child unknown(copied.pid);
    } catch (const StartError&) {  // it has been ended all the same
    }
  channel_.reset();
}

}  // namespace lockstep::shell
