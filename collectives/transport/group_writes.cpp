// When a connection ends, Gloo forgets sends that it could not write at once: Pair::signalException wakes the waits for
// receives and for sends that have not begun, but not those for sends in its transmit queue, and a write that fails
// because the connection is closed puts its send there. A wait for such a send would last until the group's time limit,
// and could not be aborted. So a write into a closed connection of a group counts as done: the queue empties, Gloo
// reads the end of the connection next, and reports that as an error.
#include <map>
#include <mutex>

#include "collectives/transport/group_sockets.h"

namespace lockstep::dist {

namespace {
using Flag = std::shared_ptr<std::atomic<bool>>;
struct Watched {
  std::mutex mutex;
  std::multimap<std::string, Flag> flags;  // by local address
};
// Never destroyed: transports may write until the process is gone.
Watched& watched() {
  static Watched* all = new Watched;
  return *all;
}
}  // namespace

bool count_write_as_done(int fd) {
  const std::string local = local_address(fd);
  std::lock_guard lock(watched().mutex);
  const auto [begin, end] = watched().flags.equal_range(local);
  for (auto each = begin; each != end; ++each) each->second->store(true);
  return begin != end;
}

void watch_writes(const std::string& local, const Flag& lost) {
  std::lock_guard lock(watched().mutex);
  watched().flags.emplace(local, lost);
}

void forget_writes(const std::string& local, const Flag& lost) {
  std::lock_guard lock(watched().mutex);
  const auto [begin, end] = watched().flags.equal_range(local);
  for (auto each = begin; each != end; ++each)
    if (each->second == lost) {
      watched().flags.erase(each);
      return;
    }
}

}  // namespace lockstep::dist
