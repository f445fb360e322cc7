// Starts the ranks and the store of a session as copies of one process. Loading LibTorch takes most of their start, and
// 58 MB of memory that the copies share.
#pragma once

namespace lockstep::worker {

/// Says what a process is once copy_for_orders() has returned.
enum class Copy { none, rank, store };

/// Starts a copy of this process for each order that comes through the socket of `arguments`, which are those of main():
/// lockstep-worker --ranks FD (protocol/rank_copy.h). The parent of the copies is that of this process, which reaps
/// them. Returns `rank` or `store` in the copies, which then have the environment, arguments and descriptors of one;
/// `none` in this process once the other end of the socket is gone, or where no copy can be started.
Copy copy_for_orders(char** arguments);

}  // namespace lockstep::worker
