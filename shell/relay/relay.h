// `lockstep relay` stands for this machine in a `lockstep run` or `lockstep attach` on another one. That has started it
// by ssh, srun or kubectl and speaks to it over its standard input and output (shell/jobs/relay_messages.h), or the
// relay has connected to it with a ticket (shell/link/link_client.h).
//
// The relay watches the ranks of this user as `lockstep run` watches those of its own machine, passes requests on to
// their agents, and reads what they leave when they end. It starts and signals no process of a job. It starts the ranks
// of a session whose shell is on the other machine (session_ranks.h). It ends when its input does, and they with it.
//
// The relay writes into the folder of a job that it is judged elsewhere, so that a `lockstep run` of this machine
// leaves the verdict to the judge, and ends with its exit code.
#pragma once

namespace lockstep::shell {

/// Serves until the input ends, over these two descriptors, which may be one socket. `has_hub`: ranks of this machine may
/// come to a hub of the other one, through a socket of this process. Returns the exit code.
int run_relay(int input, int output, bool has_hub);

}  // namespace lockstep::shell
