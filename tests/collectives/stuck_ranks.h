// What tests of ranks that are stuck have in common: something that happens while a rank waits in a collective, the
// exception that it leaves with, and a way to meet outside of the group.
#pragma once
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "collectives/dist.h"
#include "collectives/log/collective_log.h"
#include "collectives/rank_context.h"

namespace lockstep {

/// Runs on another thread when the rank's thread sits in its `count`-th collective.
class WhenInCollective {
 public:
  WhenInCollective(int64_t count, std::function<void()> action)
      : thread_([this, context = dist::current_context(), count, action = std::move(action)] {
          const dist::CollectiveLogReader log(context->log()->mapping());
          const auto there = [&] {
            const auto in_flight = log.in_flight();
            return !in_flight.empty() && in_flight.front().seq >= count;
          };
          while (!there()) {
            if (over_) return;  // the collective has ended unseen: the test's expectations say so
            std::this_thread::yield();
          }
          action();
        }) {}
  ~WhenInCollective() {
    over_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> over_ = false;
  std::thread thread_;
};

/// Until a thread of this process waits in the kernel, as one does that waits in a store.
inline void wait_until_asleep(pid_t thread) {
  const auto asleep = [&] {
    std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
    std::string stat;
    std::getline(file, stat);
    return stat.find(") S ") != std::string::npos;
  };
  while (!asleep()) std::this_thread::yield();
}

/// The Error that `call` throws.
template <typename Error, typename Call>
Error caught(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  throw std::runtime_error("nothing was thrown");
}

/// What the session does between two cells: nobody regroups before all have left their collectives.
inline void meet(const dist::Store& store, const std::string& where, int rank, int size) {
  store->set(where + std::to_string(rank), "here");
  for (int each = 0; each < size; ++each) store->wait({where + std::to_string(each)});
}

}  // namespace lockstep
