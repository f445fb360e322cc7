// Orders of the shell to lockstep-worker --ranks, which has loaded LibTorch and starts the session's store and its ranks as
// copies of itself, and what the copies answer. They are messages of a Unix socket that keeps messages apart.
#pragma once
#include <sys/types.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "protocol/descriptor.h"
#include "protocol/output_channel.h"

namespace lockstep::protocol {

/// A rank that is to be started, or the process of the store. Who sends the order keeps its descriptors.
struct CopyOrder {
  std::map<std::string, std::string> environment;  // added to that of the process; names the rank, if it is one
  int output = -1;  // becomes descriptors 1 and 2
  int lifeline = -1;  // LOCKSTEP_LIFELINE_FD
  OutputChannels channels;  // of a rank: LOCKSTEP_OUTPUT_FDS
  int listener = -1;  // of the store: LOCKSTEP_LISTEN_FD

  bool is_store() const { return listener >= 0; }
};
/// A copy says that it is this rank from now on, or the store.
struct Copied {
  static constexpr int kStore = -1;
  int rank = 0;
  pid_t pid = 0;
};

/// False where the socket does not take it.
bool send(int socket, const CopyOrder& order);
bool send(int socket, const Copied& answer);

/// Waits for the next order, whose environment then names the descriptors that have come with it. Nothing: the other end
/// is gone, or has sent what is no order.
struct ReceivedOrder {
  CopyOrder order;
  std::vector<Descriptor> descriptors;  // all that the order names
};
std::optional<ReceivedOrder> receive_order(int socket);
/// Reading::bytes: `answer` has been received.
Reading receive(int socket, Copied& answer);

}  // namespace lockstep::protocol
