// Finds whose groups a call of dist:: means: the calling thread's rank's, or else the process's (rank_context.h).
#include <fmt/format.h>

#include <mutex>
#include <utility>

#include "collectives/rank_context.h"

namespace lockstep::dist {

namespace {
struct ContextHolder {
  std::mutex mutex;
  std::shared_ptr<RankContext> context;
  std::shared_ptr<SessionWorld> session;
};
// Never destroyed: a program that ends without destroy_process_group must not wait for the transport's threads.
ContextHolder& process_holder() {
  static ContextHolder* holder = new ContextHolder;
  return *holder;
}
thread_local ContextHolder* thread_holder = nullptr;
ContextHolder& holder() { return thread_holder ? *thread_holder : process_holder(); }
}  // namespace

std::shared_ptr<RankContext> current_context() {
  ContextHolder& held = holder();
  std::lock_guard lock(held.mutex);
  return held.context;
}

std::shared_ptr<RankContext> require_context(const char* function) {
  auto context = current_context();
  if (!context)
    throw Error(fmt::format("dist::{}: there is no process group{}; call dist::init_process_group() first", function,
                            session_world() ? " any more" : " yet"));
  return context;
}

void set_current_context(std::shared_ptr<RankContext> context) {
  ContextHolder& held = holder();
  std::unique_lock lock(held.mutex);
  if (context && held.context)
    throw Error("the process group is initialised already; call dist::destroy_process_group() first");
  std::swap(held.context, context);
  lock.unlock();  // the old one closes its groups when it goes
}

Group group_of_now(const Group& handle) {
  const auto context = current_context();
  const auto entry = context ? context->look_up(handle) : std::nullopt;
  return entry ? entry->handle : handle;  // none: a group of c10d's own
}

std::vector<int> session_ranks(const Group& group) {
  return require_context("get_process_group_ranks")->find(group).group->identity().ranks;
}

std::shared_ptr<SessionWorld> session_world() {
  ContextHolder& held = holder();
  std::lock_guard lock(held.mutex);
  return held.session;
}

void set_session_world(std::shared_ptr<SessionWorld> world) {
  ContextHolder& held = holder();
  std::lock_guard lock(held.mutex);
  held.session = std::move(world);
}

ThreadRank::ThreadRank() { thread_holder = new ContextHolder; }
ThreadRank::~ThreadRank() {
  set_current_context({});
  delete std::exchange(thread_holder, nullptr);
}

}  // namespace lockstep::dist
