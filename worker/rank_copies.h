// Ranks as copies of one process. Loading LibTorch takes most of a rank's start, and 58 MB of memory that the copies share.
#pragma once

namespace lockstep::worker {

/// Starts a copy of this process for each order that comes through the socket of `arguments`, which are those of main():
/// lockstep-worker --ranks FD (protocol/rank_copy.h). The parent of the copies is that of this process, which reaps them.
/// Returns true in the copies, whose environment, arguments and descriptors are then those of a rank; false in this
/// process once the other end of the socket is gone, or where no copy can be started.
bool copy_for_orders(char** arguments);

}  // namespace lockstep::worker
