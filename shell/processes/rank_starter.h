// Starts the store and the ranks of a C++ session on the CPU as copies of one process that has loaded LibTorch
// (worker/rank_copies.h). They are children of this process, as those that are started one by one, and live on without it.
#pragma once
#include <deque>
#include <functional>
#include <memory>
#include <optional>

#include "protocol/rank_copy.h"
#include "shell/processes/deadline.h"
#include "shell/processes/event_loop.h"
#include "shell/processes/launcher.h"

namespace lockstep::shell {

class RankStarter {
 public:
  struct Listener {
    /// `rank` is Copied::kStore for the store.
    std::function<void(int rank, std::unique_ptr<Child> process)> started;
    /// It starts no more copies: its process has ended (`end`), or gave no answer and was killed (no `end`). What was ordered and
    /// not reported by started() does not come.
    std::function<void(const std::optional<ProcessEnd>& end)> failed;
  };
  /// `launch` starts lockstep-worker. Throws StartError.
  RankStarter(EventLoop& loop, Launch launch, Listener listener);
  ~RankStarter();
  RankStarter(const RankStarter&) = delete;
  RankStarter& operator=(const RankStarter&) = delete;

  bool works() const { return static_cast<bool>(channel_); }
  /// Starts a copy; the listener hears of it, perhaps at once. The descriptors of `order` stay open until then.
  void start(protocol::CopyOrder order);

 private:
  void send_orders();
  void take_answer();
  void give_up(const std::optional<ProcessEnd>& end);
  void end();

  EventLoop& loop_;
  const Listener listener_;
  Descriptor channel_;  // none: it has failed
  std::unique_ptr<Child> process_;
  std::deque<protocol::CopyOrder> orders_;  // not yet sent
  int unanswered_ = 0;  // have been sent
  bool has_answered_ = false;
  Deadline patience_{loop_};
};

}  // namespace lockstep::shell
