// The terminal of a person in front of a detachable session: what is typed goes to the session's keeper, and what the
// keeper sends is shown. It holds nothing that is missed when this process is killed.
#pragma once
#include <string>

#include "protocol/descriptor.h"
#include "shell/detached/messages.h"

namespace lockstep::shell {

/// Describes the terminal of this process.
TerminalHello describe_terminal(Asks asks);

/// Waits for the answer to a TerminalHello. Throws UsageError where the terminal is not taken, with the keeper's reason.
KeeperAnswer answer_of(int keeper);

/// Runs until the session ends (returns its exit code), lets go of this terminal (0), or this process is to end (128 and
/// the signal); the session goes on then. Ctrl-Z stops this process alone. A terminal that watches types nothing: q
/// leaves.
int run_attached(Descriptor keeper, bool watches);

}  // namespace lockstep::shell
