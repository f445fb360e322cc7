#include "worker/cell/progress.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "worker/cell/values.h"
#include "worker/process/run_state.h"

namespace lockstep::detail {
namespace {

constexpr int64_t kSecond_ns = 1'000'000'000;
// All ranks of a machine report at the same ticks of its clock, so that their numbers can be compared.
constexpr int64_t kTick_ns = kSecond_ns / 5, kSlowTick_ns = kSecond_ns;
constexpr int64_t kSlowAfter_ns = 60 * kSecond_ns;

/// Allows reports of loops that have just begun, or are over before their first tick: so many in a cell, and a few a
/// second from then on.
class Allowance {
 public:
  bool take(int64_t cell, int64_t now_ns) {
    const std::lock_guard lock(mutex_);
    if (std::exchange(cell_, cell) != cell) left_ = kMost;
    left_ = std::min(kMost, left_ + kPerSecond * static_cast<double>(now_ns - since_ns_) / kSecond_ns);
    since_ns_ = now_ns;
    if (left_ < 1) return false;
    left_ -= 1;
    return true;
  }

 private:
  static constexpr double kMost = 20, kPerSecond = 5;
  std::mutex mutex_;
  int64_t cell_ = 0;
  double left_ = kMost;
  int64_t since_ns_ = 0;
};
Allowance& allowance() {
  static Allowance all;
  return all;
}

int64_t next_tick(int64_t now_ns, int64_t begun_ns) {
  const int64_t tick = now_ns - begun_ns < kSlowAfter_ns ? kTick_ns : kSlowTick_ns;
  return (now_ns / tick + 1) * tick;
}

/// A label is a part of one row of the screen.
std::string without_control_characters(std::string label) {
  for (char& c : label)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  return label;
}

}  // namespace

/// Holds the loops that a thread is in, outermost first, and how often it has begun each of the outermost in this cell.
struct ProgressLoop::Thread {
  int64_t cell = 0;
  std::string prefix;  // of names: empty for the thread that runs cells
  std::vector<ProgressLoop*> open;
  std::map<std::string, int64_t> begun;

  void forget_open() {
    for (ProgressLoop* loop : open) loop->thread_ = nullptr;
    open.clear();
  }
  ~Thread() { forget_open(); }
};

ProgressLoop::Thread& ProgressLoop::this_thread() {
  static std::atomic<int> count{0};
  static thread_local Thread thread{.cell = 0,
                                    .prefix = ::syscall(SYS_gettid) == ::getpid() ? "" : std::to_string(++count) + "/",
                                    .open = {},
                                    .begun = {}};
  const int64_t cell = worker::run_state().cell();
  if (thread.cell != cell) {
    thread.cell = cell;
    thread.forget_open();  // loops of an earlier cell that were left in the middle and still exist
    thread.begun.clear();
  }
  return thread;
}

ProgressLoop::ProgressLoop(std::string label, std::optional<int64_t> total, const std::source_location& where)
    : label_(without_control_characters(std::move(label))),
      total_(total && *total < 0 ? std::nullopt : total),
      site_(std::to_string(where.line()) + ":" + std::to_string(where.column())),
      line_(static_cast<int>(where.line())) {}

ProgressLoop::~ProgressLoop() { end(false); }

void ProgressLoop::begin() {
  end(false);
  thread_ = &this_thread();
  cell_ = thread_->cell;
  ProgressLoop* around = thread_->open.empty() ? nullptr : thread_->open.back();
  int64_t& begun = (around ? around->begun_inside_ : thread_->begun)[site_];
  parent_ = around ? around->name_ : "";
  name_ = (around ? around->name_ + "@" + std::to_string(around->done_) + "/" : thread_->prefix) + site_ + "#" +
          std::to_string(begun++);
  thread_->open.push_back(this);
  done_ = 0;
  begun_inside_.clear();
  begun_ns_ = worker::RunState::now_ns();
  next_ns_ = next_tick(begun_ns_, begun_ns_);
  is_reported_ = allowance().take(cell_, begun_ns_);
  if (is_reported_) report(LoopState::running, begun_ns_);
}

void ProgressLoop::advance() {
  ++done_;
  if (!begun_inside_.empty()) begun_inside_.clear();
  if (!thread_) return;
  const int64_t now = worker::RunState::now_ns();
  if (now < next_ns_) return;
  next_ns_ = next_tick(now, begun_ns_);
  is_reported_ = true;
  report(LoopState::running, now);
}

void ProgressLoop::complete() { end(true); }

void ProgressLoop::end(bool is_complete) {
  Thread* const thread = std::exchange(thread_, nullptr);
  if (!thread) return;
  std::erase(thread->open, this);
  if (thread->cell != cell_) return;
  const int64_t now = worker::RunState::now_ns();
  // A loop that nobody has seen is worth a line only where it is the outermost.
  if (!is_reported_ && (!parent_.empty() || !allowance().take(cell_, now))) return;
  report(is_complete ? LoopState::completed : LoopState::stopped, now);
}

void ProgressLoop::report(LoopState state, int64_t now_ns) const {
  try {
    worker::post_progress({.cell = cell_,
                           .loop = name_,
                           .parent = parent_,
                           .label = label_,
                           .line = line_,
                           .done = done_,
                           .total = total_,
                           .elapsed_s = static_cast<double>(now_ns - begun_ns_) / kSecond_ns,
                           .state = state});
  } catch (const std::bad_alloc&) {
    // A destructor ends here: the loop goes on, and nobody sees how far it is.
  }
}

}  // namespace lockstep::detail
