#include "collectives/log/device_progress.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "collectives/log/collective_log.h"

namespace lockstep::dist {

using log_layout::DeviceTimes;
using log_layout::EntryState;

namespace {
// Each new call asks this many of the oldest: more than one, so that their number falls.
constexpr size_t kAskedByEachCall = 2;

std::atomic<void (*)(const std::function<void()>&)> query_guard{nullptr};

struct Pending {
  uint64_t entry = 0;
  DeviceProgress::Order order;
  DeviceCall call;
  bool reached = false;
};

/// Holds what a device says of a call.
struct Answer {
  uint64_t entry = 0;
  bool reached = false;
  StreamEnd end = StreamEnd::none;
};

Answer ask(const Pending& pending) {
  Answer answer{.entry = pending.entry, .reached = pending.reached};
  try {
    if (pending.call.end) answer.end = pending.call.end();
    if (!answer.reached && pending.call.reached) answer.reached = pending.call.reached();
  } catch (...) {  // the device failed; its own error comes up in the program's next call
    answer.end = StreamEnd::failed;
  }
  return answer;
}

/// Whether the entry is in flight by the log: nobody has ended it, and no later one has its slot.
bool stands(const LogMapping& log, uint64_t entry) {
  return log.entry(entry).state.load(std::memory_order_acquire) == entry * 4;
}
}  // namespace

void set_device_query_guard(void (*guard)(const std::function<void()>& ask)) {
  query_guard.store(guard, std::memory_order_release);
}

void ask_devices(const std::function<void()>& ask) {
  if (const auto guard = query_guard.load(std::memory_order_acquire))
    guard(ask);
  else
    ask();
}

struct DeviceProgress::State {
  explicit State(const LogMapping& log) : log(&log) {}

  mutable std::mutex mutex;
  std::condition_variable changed;
  const LogMapping* log;  // null: the log is gone
  std::deque<Pending> pending;  // oldest first
  bool has_thread = false;
  uint64_t wanted = 0, looked = 0;  // looks

  /// Copies the oldest calls, so that no lock is held while a device is asked. Those that have ended otherwise are not
  /// asked, and are dropped: their events may be of a device that has failed.
  std::vector<Pending> oldest(size_t count) {
    std::vector<Pending> asked, ended;  // destroyed without the lock
    const std::lock_guard lock(mutex);
    if (!log) return {};
    for (auto each = pending.begin(); each != pending.end() && asked.size() < count;) {
      if (stands(*log, each->entry)) {
        asked.push_back(*each++);
      } else {
        ended.push_back(std::move(*each));
        each = pending.erase(each);
      }
    }
    return asked;
  }

  void write(const std::vector<Answer>& answers) {
    const std::lock_guard lock(mutex);
    if (!log) return;
    const int64_t now = monotonic_ns();
    std::set<Order> busy;  // where an earlier collective is in flight
    auto answer = answers.begin();
    for (auto each = pending.begin(); each != pending.end() && answer != answers.end();) {
      while (answer != answers.end() && answer->entry < each->entry) ++answer;  // ended meanwhile
      if (answer == answers.end() || answer->entry != each->entry) {
        busy.insert(each->order);
        ++each;
        continue;
      }
      if (!stands(*log, each->entry)) {
        each = pending.erase(each);
        continue;
      }
      if (answer->end != StreamEnd::none) {
        finish_entry(*log, each->entry, answer->end == StreamEnd::done ? EntryState::done : EntryState::failed);
        each = pending.erase(each);
        continue;
      }
      each->reached = each->reached || answer->reached;
      DeviceTimes& times = log->device_times(each->entry);
      if (times.owner.load(std::memory_order_relaxed) == each->entry + 1) {
        if (each->reached && times.reached_ns.load(std::memory_order_relaxed) == 0)
          times.reached_ns.store(now, std::memory_order_relaxed);
        if (each->reached && !busy.contains(each->order) && times.started_ns.load(std::memory_order_relaxed) == 0)
          times.started_ns.store(now, std::memory_order_release);
        if (each->call.reached) times.looked_ns.store(now, std::memory_order_release);
      }
      busy.insert(each->order);
      ++each;
    }
  }

  void look(size_t count) {
    const std::vector<Pending> asked = oldest(count);
    if (asked.empty()) return;
    std::vector<Answer> answers;
    ask_devices([&] {
      for (const Pending& each : asked) answers.push_back(ask(each));
    });
    write(answers);
  }
};

DeviceProgress::DeviceProgress(const LogMapping& log) : state_(std::make_shared<State>(log)) {}

DeviceProgress::~DeviceProgress() {
  std::deque<Pending> ended;  // destroyed without the lock
  {
    const std::lock_guard lock(state_->mutex);
    state_->log = nullptr;
    ended.swap(state_->pending);
  }
  state_->changed.notify_all();
}

void DeviceProgress::add(uint64_t entry, Order order, DeviceCall call) {
  state_->look(kAskedByEachCall);
  const std::lock_guard lock(state_->mutex);
  DeviceTimes& times = state_->log->device_times(entry);
  times.owner.store(0, std::memory_order_release);
  times.looked_ns.store(0, std::memory_order_relaxed);
  times.reached_ns.store(0, std::memory_order_relaxed);
  times.started_ns.store(0, std::memory_order_relaxed);
  times.owner.store(entry + 1, std::memory_order_release);
  // Threads number their calls before they add them.
  const auto after = std::ranges::find_if(state_->pending, [&](const Pending& each) { return each.entry > entry; });
  state_->pending.insert(after, {.entry = entry, .order = order, .call = std::move(call)});
}

void DeviceProgress::set_end(uint64_t entry, std::function<StreamEnd()> end) {
  std::function<StreamEnd()> old;  // destroyed without the lock: it may hold the last reference to a work
  const std::lock_guard lock(state_->mutex);
  for (Pending& each : state_->pending) {
    if (each.entry != entry) continue;
    old = std::exchange(each.call.end, std::move(end));
    return;
  }
}

bool DeviceProgress::look(std::chrono::milliseconds limit) {
  std::unique_lock lock(state_->mutex);
  if (state_->pending.empty()) return true;
  if (!std::exchange(state_->has_thread, true)) {
    std::thread([state = state_] {
      std::unique_lock lock(state->mutex);
      while (state->log) {
        if (state->looked == state->wanted) {
          state->changed.wait(lock);
          continue;
        }
        const uint64_t now = state->wanted;
        lock.unlock();
        state->look(SIZE_MAX);
        lock.lock();
        state->looked = now;
        state->changed.notify_all();
      }
    }).detach();
  }
  const uint64_t mine = ++state_->wanted;
  state_->changed.notify_all();
  return state_->changed.wait_for(lock, limit, [&] { return state_->looked >= mine; });
}

size_t DeviceProgress::in_flight() const {
  const std::lock_guard lock(state_->mutex);
  return state_->pending.size();
}

}  // namespace lockstep::dist
