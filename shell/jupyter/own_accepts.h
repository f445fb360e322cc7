// Makes sockets of a kernel take connections of this user only. Jupyter signs messages, and nothing more: whoever
// reaches the port of iopub would read the code and the output of every cell, and any user of the machine reaches a
// port of the loopback interface.
#pragma once

namespace lockstep::shell::jupyter {

/// Has those closed (shell/processes/accept_check.h) that come over the loopback interface whose other end is not a
/// socket of this process's user. The first is reported on the standard error. Connections from other machines are not
/// looked at: a frontend that has the kernel listen there has its reason.
void accept_own_user_only();

}  // namespace lockstep::shell::jupyter
