// Starts processes of the compiler. All of them are children of the first one, the supervisor, whichever process
// started them: so they end when it ends, and it learns how they ended.
#pragma once
#include <sys/types.h>

#include <utility>

#include "protocol/descriptor.h"

namespace lockstep::compiler {

/// Starts a copy of this process: 0 in the copy, its pid here. The copy's parent is `supervisor` (this process, or its
/// parent), with which it ends. Throws StartError when there are too many processes, or no memory.
pid_t start_copy(pid_t supervisor);

/// Sends an open descriptor over a channel, with the pid of the process at the descriptor's other end.
void send_descriptor(int channel, int fd, pid_t pid);
/// Throws ChannelError when the other end is gone.
std::pair<Descriptor, pid_t> receive_descriptor(int channel);

}  // namespace lockstep::compiler
