// A detachable session runs on a pseudo-terminal. Its keeper is the process that holds the other side, and passes what
// is typed and drawn between it and the terminal of a person, who may lose that terminal and come back with another
// one. It has no part in the session beyond that: cells, ranks and the prompt are where they are without it.
//
//   lockstep --detachable ──socket── keeper ──pseudo-terminal── session ── ranks, compiler
//   (attached_terminal.h)            │ ID.terminal              (as without it)
//   lockstep --resume ID ───────────┘
//
// Who owns whom: the session ends by SIGHUP when its keeper does, as it does with any terminal that is lost. The keeper
// ends when its session does, and ends it (SIGHUP) when nobody has come back in time.
#pragma once
#include <sys/types.h>

#include <chrono>

#include "protocol/descriptor.h"

namespace lockstep::shell {

/// Runs until the session has ended. `master`: the other side of its terminal; `session`: to the process `pid`, which
/// is a child of this one; `first`: to the terminal that has started it. The session waits `time` for somebody to come
/// back.
void keep_session(Descriptor master, Descriptor session, pid_t pid, Descriptor first, std::chrono::seconds time);

}  // namespace lockstep::shell
