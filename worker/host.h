// Provides what worker/process/host.h asks for, in the worker.
#pragma once

namespace lockstep::worker {

class Outbox;

/// Sends the values that cells show to `outbox` from now on. Called once, at start.
void send_values_to(Outbox& outbox);

/// Whether a cell has registered a function with on_preempt(). From any thread.
bool has_preemption_function();
/// Calls the function that a cell has registered with on_preempt(). On the run thread.
void run_preemption_function();

}  // namespace lockstep::worker
