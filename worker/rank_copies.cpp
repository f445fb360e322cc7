#include "worker/rank_copies.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <string>
#include <utility>

#include "protocol/descriptor.h"
#include "protocol/process_copy.h"
#include "protocol/rank_copy.h"

namespace lockstep::worker {
namespace {

/// Whether a copy of this process works: it has one thread, and the kernel tells where its number is kept.
bool can_be_copied() {
  const std::filesystem::directory_iterator threads("/proc/self/task");
  return thread_number_address() && std::distance(begin(threads), end(threads)) == 1;
}

/// Writes a text over one that this process was started with, which the kernel shows to others. What is longer is left.
void show(char* place, const std::string& text) {
  const size_t room = place ? std::strlen(place) : 0;
  if (text.size() > room) return;
  std::memset(place, 0, room);
  std::memcpy(place, text.data(), text.size());
}

/// Makes the copy, which calls it, the rank or the store of an order, and leader of its group.
Copy become(protocol::ReceivedOrder received, int channel, char** arguments) {
  const protocol::CopyOrder& order = received.order;
  // The store outlives the shell for a moment, to end what ranks have left behind.
  if (order.is_store()) ::prctl(PR_SET_PDEATHSIG, 0);
  ::setpgid(0, 0);
  ::dup2(order.output, STDOUT_FILENO);
  ::dup2(order.output, STDERR_FILENO);
  for (Descriptor& each : received.descriptors)
    if (each.get() != order.output) each.release();  // they are this process's from now on
  const std::string rank = order.is_store() ? "" : order.environment.at("LOCKSTEP_RANK");
  // Others know by the environment what the rank has started (collectives/log/marked_processes.h). The shell has left
  // room for the number.
  show(std::getenv("LOCKSTEP_RANK"), rank);
  show(arguments[1], order.is_store() ? "--store" : "");
  show(arguments[2], "");
  for (const auto& [name, value] : order.environment) ::setenv(name.c_str(), value.c_str(), 1);
  // If the shell does not hear of this process, nobody would end it.
  const int number = order.is_store() ? protocol::Copied::kStore : std::atoi(rank.c_str());
  if (!protocol::send(channel, protocol::Copied{.rank = number, .pid = ::getpid()})) ::_exit(1);
  ::close(channel);
  return order.is_store() ? Copy::store : Copy::rank;
}

}  // namespace

Copy copy_for_orders(char** arguments) {
  const int channel = std::atoi(arguments[2]);
  const pid_t shell = ::getppid();
  if (!can_be_copied()) return Copy::none;
  while (auto received = protocol::receive_order(channel)) {
    const pid_t pid = start_copy(shell);
    if (pid == 0) return become(std::move(*received), channel, arguments);
    if (pid < 0) break;
  }
  return Copy::none;
}

}  // namespace lockstep::worker
