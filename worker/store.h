// `lockstep-worker --store`, or a copy of `lockstep-worker --ranks` (worker/rank_copies.h), is the process that holds
// the session's TCPStore, so that no rank's death takes it along. It also keeps the session's process groups: however
// the session ends, it kills what is left of them.
//
// Without LOCKSTEP_LISTEN_FD it prints {"port":N} as one line on its standard output once it takes connections on
// 127.0.0.1:N; nothing else.
// Environment: LOCKSTEP_LIFELINE_FD, the read end of a pipe that nobody writes to but the shell. Each line on it,
// "PID", gives a process group (of that number) into its keeping, and "-PID" takes it back. The end of the pipe is the
// end of the session. LOCKSTEP_KEEPER_FD may name another pipe for the lines.
//
// Processes that ranks started and that left these groups are known by LOCKSTEP_SESSION_DIR in their environment, which
// the store's has, too: they are killed at the end of the session as well.
//
// On 127.0.0.1 the store takes connections of processes of its own user only. It holds 256 MB at most: beyond that it
// ends with code 4.
//
// LOCKSTEP_LISTEN_FD, when it is set, names a listening socket on one address that the shell or a relay has made. The
// store takes connections there (masterListenFd), so workers can start at the same moment as the store and know its
// port. Only sessions over several machines have another address than 127.0.0.1. There others are kept out only by the
// keys of a session, which begin with LOCKSTEP_STORE_KEY.
#pragma once

namespace lockstep::worker {

/// Runs until the lifeline ends. Returns the exit code.
int run_store();

}  // namespace lockstep::worker
