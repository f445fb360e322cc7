// Frees a rank that is stuck in a collective: the requests "abort" and "abort_groups" of the agent.
#pragma once

namespace lockstep::python {

/// Registers both, once. "abort" shuts down the connections of Gloo's groups and answers at once, however the rank is
/// stuck: {"connections": N}. "abort_groups" calls c10d's abort() of every group that has a backend with one (NCCL, and
/// `lockstep`), which may wait for a device: {"groups": [names], "problems": [messages]}. Collectives that are under
/// way raise an exception, and so do later ones of these groups.
void expect_aborts();

}  // namespace lockstep::python
